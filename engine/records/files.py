"""The one place that writes and removes files: whole or not at all, and never over what this software did not write.

Every file that is written has a `FileKind`, which tells an earlier output by its content. `check_file` asks before a
command begins, `write_atomic` again right before the new file takes the place of the old one."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from engine.records.errors import InputError

if TYPE_CHECKING:
    import polars as pl

SUFFIX = ".part"
IDLE_S = 24 * 3600.0  # of another machine's: it may still write there, and its processes cannot be asked for


def temporary(path: Path) -> Path:
    """`.NAME.HOST.PID.part` beside `path`: what this process writes before it gets its name; where there is
    something of that name, `.NAME.HOST.PID.RANDOM.part`."""
    begin = f".{path.name}.{_host()}.{os.getpid()}"
    plain = path.with_name(begin + SUFFIX)
    return path.with_name(f"{begin}.{secrets.token_hex(4)}{SUFFIX}") if os.path.lexists(plain) else plain


def sweep(path: Path) -> list[Path]:
    """Remove what processes that are no more left of `path` beside it; returns what went.

    A file or folder of such a name (or `.NAME.PID.part`, as earlier versions wrote) goes where no process PID is on
    this machine; one of another machine where nobody touched it for a day. Links are removed, not followed. What cannot
    be removed stays."""
    gone = []
    try:
        beside = [entry for entry in os.scandir(path.parent) if entry.name.startswith(f".{path.name}.")]
    except OSError:
        return []
    for entry in beside:
        found = Path(entry.path)
        if _is_leftover(found, path.name):
            try:
                shutil.rmtree(found) if entry.is_dir(follow_symlinks=False) else found.unlink()
            except OSError:
                continue
            gone.append(found)
    return gone


def _is_leftover(found: Path, name: str) -> bool:
    own = r"(?:([A-Za-z0-9-]+)\.)?([0-9]{1,9})(?:\.[0-9a-f]{8})?"
    match = re.fullmatch(rf"\.{re.escape(name)}\.{own}{re.escape(SUFFIX)}", found.name)
    if match is None:
        return False
    if match[1] in (None, _host()):
        return not _lives(int(match[2]))
    try:
        return time.time() - found.lstat().st_mtime > IDLE_S
    except OSError:
        return False


def _lives(pid: int) -> bool:
    """Is there a process of this number here? Another user's is one too."""
    if pid == os.getpid() or os.name == "nt":  # Windows would end the process that is asked for
        return True
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _host() -> str:
    """The machine's name in letters, digits and - only; a number alone would read as a PID."""
    return "h" + re.sub(r"[^A-Za-z0-9-]+", "-", platform.node())[:40]


_WORDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file",
}  # fmt: skip
_MOST_JSON = 64 * 2**20  # bytes of a JSON file that is read to see whether it is ours


@dataclass(frozen=True)
class FileKind:
    """A kind of file that is written. name: as messages name it, as in "a mask file". is_ours: does a plain file hold
    an earlier output of this kind? option: of the command line, that names the file or its folder."""

    name: str
    is_ours: Callable[[Path], bool]
    option: str = "--out"


PLAIN = FileKind("a file", lambda path: True)  # whose caller knows that its place is this software's own


def check_file(path: Path, kind: FileKind) -> None:
    """`InputError` unless `path` is free, or an earlier output of this kind in a plain file that may be written."""
    another = f"give another {kind.option}"
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {path} ({getattr(error, 'strerror', None) or error}); {another}") from None
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is {what_is(path)}, and only plain files are written over; {another}")
    if not mode & 0o222:  # which does not keep root from replacing it, nor whoever owns the folder
        raise InputError(f"{path} is read-only; make it writable, or {another}")
    if not kind.is_ours(path):
        raise InputError(
            f"{path} is there already and is not {kind.name} that this software wrote; {another}, or move it away"
        )


def what_is(path: Path) -> str:
    """What lies there, in words."""
    return _WORDS.get(stat.S_IFMT(path.lstat().st_mode), "of an unknown kind")


def check_folder_of(path: Path, option: str, *, made: bool) -> None:
    """`InputError` unless the folder of `path` is there and can be written to or, if it is `made`, can be made."""
    for folder in path.absolute().parents:
        if folder.is_dir():
            try:
                with TemporaryFile(dir=folder):  # what a file system says of itself is not what it does
                    return
            except OSError as error:
                why = f"cannot write to the folder {folder} ({error.strerror})"
                raise InputError(f"{why}; give a writable folder with {option}") from None
        if os.path.lexists(folder):
            raise InputError(f"{folder} is no folder; give a writable folder with {option}")
        if not made:
            raise InputError(f"there is no folder {folder}; make it, or give another {option}")


def make_folder(folder: Path, option: str = "--out") -> None:
    """The folder and those above it, where they are absent. Errors: InputError that names the option."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder} ({error.strerror}); give another {option}") from None


def write_atomic(path: Path, content: bytes, kind: FileKind = PLAIN) -> None:
    """Write so that `path` holds the old bytes or the new ones, never a part: a temporary name, fsync, replace. What a
    killed process left of an earlier try goes first. Errors: InputError as `check_file`; OSError, with `path` as its
    `filename`."""
    check_file(path, kind)
    sweep(path)
    with suppress(FileExistsError):
        return _write(path, temporary(path), content, kind)
    return _write(path, temporary(path), content, kind)  # another thread took that name, and now has it


def _write(path: Path, unfinished: Path, content: bytes, kind: FileKind) -> None:
    try:
        stream = unfinished.open("xb")
    except OSError as error:
        raise _of(path, error) from None
    try:
        with stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        check_file(path, kind)  # what came meanwhile
        os.replace(unfinished, path)
    except OSError as error:
        raise _of(path, error) from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _of(path: Path, error: OSError) -> OSError:
    """The error with the name of the file, not that on the way."""
    return error if error.errno is None else OSError(error.errno, error.strerror, str(path))


def write_parquet(
    path: Path, table: pl.DataFrame, kind: FileKind = PLAIN, metadata: Mapping[str, str] | None = None
) -> None:
    """A tidy table, atomically; equal tables give equal bytes."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd", statistics=True, metadata=dict(metadata) if metadata else None)
    write_atomic(path, buffer.getvalue(), kind)


def remove(path: Path, kind: FileKind) -> None:
    """Remove an earlier output of this kind, if there is one. Errors: InputError as `check_file`."""
    check_file(path, kind)
    path.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder under a temporary name, which becomes `folder` when all went well: complete or not at all.
    `folder` is absent or empty (`check_new`). What a killed process left beside it is removed first."""
    folder = folder.absolute()
    sweep(folder)
    unfinished = temporary(folder)
    try:
        try:
            unfinished.mkdir(parents=True)
        except OSError as error:
            raise InputError(
                f"cannot make a folder beside {unfinished.parent} ({error.strerror}); give another --out"
            ) from None
        yield unfinished
        check_new(folder)
        if folder.is_dir():
            folder.rmdir()  # empty; os.replace wants it gone on some systems
        os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_new(folder: Path) -> None:
    """`InputError` unless the folder is absent or empty, and no link."""
    if folder.is_symlink():
        raise InputError(f"{folder} is a link; give a new folder with --out")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already and not empty; give a new folder with --out")


def json_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file; empty where it holds anything else, too much, or cannot be read."""
    try:
        if path.stat().st_size > _MOST_JSON:
            return {}
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def tensors_metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file; empty where there is none, or the file is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError, ValueError, TypeError):
        return {}


def same_bytes(content: bytes) -> bytes:
    """A safetensors file with its metadata in the order of their names: the library's order changes from call to
    call, and equal numbers are to give equal bytes."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + text.ljust(end - 8) + content[end:]
