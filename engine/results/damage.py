"""Entries of a store that are not what was written: set aside in its folder `damaged`, never deleted, and told once."""

import errno
import os
import sqlite3
import sys
from pathlib import Path

from engine.records.errors import InputError
from engine.records.files import temporary

FOLDER = "damaged"
_LONGEST_BYTES = 511  # of a path, with the zero byte behind it SQLite's own limit
_ROOM, _WRITABLE = "free some space", "make it and its files readable and writable"
_NO_LOCKS = "its file system has no locks or no shared memory, as SQLite needs them: move it to a disk of this machine"
_BY_CODE = {  # of SQLite
    code: hint
    for hint, codes in {
        _ROOM: "FULL IOERR_WRITE IOERR_SHMSIZE NOLFS",
        f"{_ROOM}, or look at the disk": "IOERR",
        _WRITABLE: "READONLY PERM AUTH CANTOPEN",
        "end what holds it": "BUSY LOCKED",
        _NO_LOCKS: "IOERR_LOCK IOERR_UNLOCK IOERR_RDLOCK IOERR_CHECKRESERVEDLOCK IOERR_SHMMAP IOERR_SHMOPEN "
        "IOERR_SHMLOCK PROTOCOL",
        "free some memory": "NOMEM",
    }.items()
    for code in (getattr(sqlite3, f"SQLITE_{name}") for name in codes.split())
}
_BY_NUMBER = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _ROOM),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _WRITABLE),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "something else is in the place of a folder: move that away"),
    errno.EISDIR: "a folder is in the place of a file: move that away",
    errno.ENAMETOOLONG: "move it to a shorter path",
    errno.ENOENT: "a folder above it is gone: make it again",
    errno.ELOOP: "links lead in a circle: name the folder itself",
}
_told: set[Path] = set()


def new_run() -> None:
    """From now on damage is told again: a command begins."""
    _told.clear()


def tell(store: Path, what: str) -> None:
    """One note on stderr per store and run, at the first damage; what is found later goes the same way."""
    if store not in _told:
        _told.add(store)
        sys.stderr.write(
            f"note: damage in the store {store} ({what}): what is damaged is moved to {store / FOLDER} and computed "
            "again\n"
        )


def aside(store: Path, name: str) -> Path:
    """A free place for `name` among what was set aside; the folder is made."""
    folder = store / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    stem, dot, suffix = name.partition(".")
    places = (folder / (f"{stem}-{count}{dot}{suffix}" if count else name) for count in range(10_000))
    return next(place for place in places if not os.path.lexists(place))


def move_aside(store: Path, path: Path) -> None:
    """Set a file or folder of the store aside; another process may have done so before."""
    try:
        os.rename(path, aside(store, path.name))
    except FileNotFoundError:
        return


def set_aside(store: Path) -> int:
    """How many entries of the store were set aside and not deleted since; an index counts as one."""
    try:
        return len(os.listdir(store / FOLDER))
    except OSError:
        return 0


def unusable(store: Path, error: BaseException | str) -> InputError:
    """The store cannot be read or written at all, whatever is in it."""
    why = (getattr(error, "strerror", None) or str(error)) if isinstance(error, BaseException) else error
    return InputError(
        f"cannot use the store {store} ({why}); what was finished is kept there: {_next_step(store, error)}, or give "
        "another folder with --store"
    )


def _next_step(store: Path, error: BaseException | str) -> str:
    """What helps, by what SQLite or the system reports."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", -1)
        beyond = len(os.fsencode(temporary(store.absolute() / "cells") / "cache.db-journal")) - _LONGEST_BYTES
        if code & 0xFF == sqlite3.SQLITE_CANTOPEN and beyond > 0:
            return f"its path is too long for SQLite by {beyond} bytes: move it to a shorter one"
        return _BY_CODE.get(code) or _BY_CODE.get(code & 0xFF, "look at the disk and the permissions of its files")
    if isinstance(error, OSError):
        return _BY_NUMBER.get(error.errno or 0, "look at the disk and the permissions of its files")
    return "name another place" if isinstance(error, ValueError) else "end what holds it, or move it away"
