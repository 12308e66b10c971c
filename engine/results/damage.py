"""Entries of a store that are not what was written: set aside in its folder `damaged`, never deleted, and told once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.records.errors import InputError

FOLDER = "damaged"
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
        f"cannot use the store {store} ({why}); what was finished is kept there: free some space, make it writable or "
        "end what holds it, or give another folder with --store"
    )
