"""Temporary names of files and folders that are being written, and what killed processes left under them."""

import os
import platform
import re
import secrets
import shutil
import time
from pathlib import Path

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
    told = re.fullmatch(rf"\.{re.escape(name)}\.{own}{re.escape(SUFFIX)}", found.name)
    if told is None:
        return False
    if told[1] in (None, _host()):
        return not _lives(int(told[2]))
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
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _host() -> str:
    """The machine's name in letters, digits and - only; a number alone would read as a PID."""
    return "h" + re.sub(r"[^A-Za-z0-9-]+", "-", platform.node())[:40]
