"""SHA-256 of files from their real bytes, remembered by size and times, and compared with what a hub promised."""

import hashlib
import json
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.records.errors import InputError
from engine.records.files import write_atomic
from engine.results.places import check_store, default_store_dir

_REMEMBER_FROM = 256 * 2**20  # bytes: reading less again takes no time that anybody notices
_MEMORY = "file_hashes.json"
_known: dict[str, dict[str, Any]] = {}
_lock = threading.Lock()


def file_sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, whatever links lead to it; read once per state of the file (size, inode, times),
    which of large files is remembered in the user's cache folder.

    Errors: `InputError` where a hub's cache promises another hash than the bytes have: a large file of that cache is a
    link to a blob that is named by the SHA-256 the hub stated. Names are only compared and never taken for the hash."""
    target = path.resolve()
    stamp = target.stat()
    state = [stamp.st_size, stamp.st_ino, stamp.st_mtime_ns, stamp.st_ctime_ns]
    with _lock:
        if not _known and stamp.st_size >= _REMEMBER_FROM:
            _known.update(_read_memory())
        entry = _known.get(str(target))
    if entry is None or entry["state"] != state:
        with target.open("rb") as file:
            entry = {"state": state, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
        with _lock:
            _known[str(target)] = entry
            if stamp.st_size >= _REMEMBER_FROM:
                _write_memory()
    digest = str(entry["sha256"])
    promised = _promised(path)
    if promised not in (None, digest):
        raise InputError(
            f"{path.name} is damaged: its bytes have the SHA-256 {digest[:12]}…, the hub states {promised[:12]}…; "
            f"remove {target} and run the command again, which fetches it anew"
        )
    return digest


def _promised(path: Path) -> str | None:
    """The SHA-256 that the hub stated: the name of the blob in its cache to which a chain of links leads first."""
    for _ in range(20):  # links in a circle were an error before
        if re.fullmatch(r"[0-9a-f]{64}", path.name) and path.parent.name == "blobs":
            return path.name
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _memory_file() -> Path:
    return default_store_dir() / _MEMORY


def _read_memory() -> dict[str, dict[str, Any]]:
    try:
        content = json.loads(_memory_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict) or content.get("sha256") != _memory_hash(files):
        return {}  # of an earlier version, or damaged: the files are read again
    return {
        path: entry for path, entry in files.items()
        if isinstance(entry, dict) and isinstance(entry.get("state"), list)
        and re.fullmatch(r"[0-9a-f]{64}", str(entry.get("sha256")))
    }  # fmt: skip


def _memory_hash(files: dict[str, dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _write_memory() -> None:
    """Hashes of the large files that still exist, those that another process added included."""
    large = {path: entry for path, entry in _known.items() if entry["state"][0] >= _REMEMBER_FROM}
    remembered = {path: entry for path, entry in {**_read_memory(), **large}.items() if Path(path).is_file()}
    with suppress(OSError, InputError):  # a folder that cannot be written, or is no store: the next one reads it again
        check_store(_memory_file().parent)
        _memory_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = {"sha256": _memory_hash(remembered), "files": remembered}
        write_atomic(_memory_file(), json.dumps(content, indent=1).encode())
