"""Stores joined into one: cell by cell and array by array, each held against its checksum."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from diskcache.core import MODE_BINARY, MODE_RAW

from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import write_atomic
from engine.records.progress import Progress
from engine.results.cells import LARGE_FILE, checksum
from engine.results.damage import unusable
from engine.results.places import default_store_dir
from engine.results.store import Store, array_file, checksum as arrays_checksum, read_checked

_Found = dict[str, tuple[str, Path]]  # key -> checksum, and the first store that has it
_AT_ONCE = 256  # cells of one transaction


@dataclass
class Merged:
    """What was joined. damaged: store -> entries that were left out."""

    cells: int = 0
    arrays: int = 0
    new_cells: int = 0
    new_arrays: int = 0
    damaged: dict[Path, list[str]] = field(default_factory=dict)


def merge(sources: Sequence[Path], target: Path | None, progress: Progress | None = None) -> tuple[Merged, Path]:
    """All cells and arrays of these stores in one, which is made if absent; its folder is returned too.

    First everything is read and compared, then what the target lacks is written: done again, also after a kill, it goes
    on. Nothing changes in a source; its tables are not taken. An entry that does not fit its checksum is told in
    `damaged`.

    Errors: InputError, before any entry is written, where a source is no store, is the target itself, is damaged as a
    whole, or holds what this version did not write; and where two stores have different values under one key."""
    folders = list(dict.fromkeys(_checked(Path(source).expanduser(), target) for source in sources))
    merged = Merged()
    cells, arrays = _entries(folders, merged.damaged)
    merged.cells, merged.arrays = len(cells), len(arrays)
    with Store(target) as store:
        new_cells, new_arrays = _missing_cells(store, cells), _missing_arrays(store, arrays)

        def wrote(count: int) -> None:
            if progress is not None:
                progress("merge", count, len(new_cells) + len(new_arrays))

        for key in new_arrays:  # first: some cells only say that their arrays are there
            _copy(array_file(store.folder, key), arrays[key][1], store.folder)
            merged.new_arrays += 1
            wrote(merged.new_arrays)
        for folder in folders:
            for some in _in_turns(folder, {key for key in new_cells if cells[key][1] == folder}):
                store.put_texts(some)
                merged.new_cells += len(some)
                wrote(merged.new_arrays + merged.new_cells)
        return merged, store.folder


def _checked(folder: Path, target: Path | None) -> Path:
    if not (folder / "cells" / "cache.db").is_file():
        raise InputError(f"{folder} is no store: it has no cells/cache.db; name the folder that --store named")
    if folder.resolve() == (Path(target).expanduser() if target else default_store_dir()).resolve():
        raise InputError(f"{folder} is the target of --store itself; name only the others, or another --store")
    return folder


def _entries(folders: Sequence[Path], damaged: dict[Path, list[str]]) -> tuple[_Found, _Found]:
    """Cells and arrays of all stores by key; what does not fit its checksum goes into `damaged`."""
    cells: _Found = {}
    arrays: _Found = {}
    for folder in folders:
        for key, content, told in _cells(folder):
            if content is None or told != checksum(key, content):
                damaged.setdefault(folder, []).append(f"cell {key[:12]}…")
            else:
                _note(cells, "cell", key, told, folder)
        for path in sorted((folder / "arrays").glob("[!.]*.safetensors")):
            read = read_checked(path)
            if read is not None and read[0] is None:
                raise _earlier(folder)
            if read is None or read[0] is None or not read[1]:
                damaged.setdefault(folder, []).append(f"arrays {path.stem[:12]}…")
            else:
                _note(arrays, "arrays", path.stem, read[0], folder)
    return cells, arrays


def _note(known: _Found, what: str, key: str, told: str, folder: Path) -> None:
    """Errors: InputError where another store has another value."""
    first = known.setdefault(key, (told, folder))
    if first[0] != told:
        raise _differ(what, key, first[1], folder)


def _differ(what: str, key: str, first: Path, second: Path) -> InputError:
    return InputError(
        f"{first} and {second} hold different values of {what} {key}, so nothing was merged: they were measured on "
        "unlike machines or by a device that does not repeat itself; leave one of the two stores out (its cells are "
        "then measured again), and compute scores and contrasts once, for all shards, next time"
    )


def _earlier(folder: Path) -> InputError:
    return InputError(
        f"{folder} holds entries without a checksum, of a version before there were any, so that nobody can say that "
        "they are whole; run its command again on a new --store, and merge that"
    )


def _missing_cells(store: Store, cells: _Found) -> set[str]:
    shared = set(store.keys()) & cells.keys()
    for key in sorted(shared):
        content = store.text(key)
        if content is None:  # damaged in the target, and set aside
            shared.discard(key)
        elif checksum(key, content) != cells[key][0]:
            raise _differ("cell", key, store.folder, cells[key][1])
    return cells.keys() - shared


def _missing_arrays(store: Store, arrays: _Found) -> list[str]:
    missing = []
    for key, (told, folder) in sorted(arrays.items()):
        known = store.load_arrays(key)
        if known is None:
            missing.append(key)
        elif arrays_checksum(key, known) != told:
            raise _differ("arrays", key, store.folder, folder)
    return missing


def _copy(path: Path, source: Path, target: Path) -> None:
    try:
        content = (source / "arrays" / path.name).read_bytes()
    except OSError as error:
        raise unusable(source, error) from None
    try:
        write_atomic(path, content)
    except OSError as error:
        raise unusable(target, error) from None


def _in_turns(folder: Path, chosen: set[str]) -> Iterator[list[tuple[str, bytes]]]:
    """The chosen cells of a store, so many at once; what has changed since it was checked is left for the next time."""
    batch: list[tuple[str, bytes]] = []
    for key, content, told in _cells(folder) if chosen else ():
        if key in chosen and content is not None and told == checksum(key, content):
            batch.append((key, content))
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _cells(folder: Path) -> Iterator[tuple[str, bytes | None, str]]:
    """Key, text (None where it cannot be read) and checksum of every cell of a store, which is only read."""
    try:
        with closing(_opened(folder / "cells" / "cache.db")) as database:
            for key, told, mode, filename, value in database.execute(
                "SELECT key, tag, mode, filename, CASE WHEN length(value) <= ? THEN value END FROM Cache",
                (bounds.MAX_JSON_BYTES,),
            ):
                if not isinstance(key, str) or mode not in (MODE_RAW, MODE_BINARY):
                    raise InputError(f"{folder} holds an entry that this software did not write, and does not read")
                if told is None:
                    raise _earlier(folder)
                yield key, _text(folder / "cells", mode, filename, value), told
    except sqlite3.Error as error:
        raise InputError(
            f"the index of the store {folder} cannot be read ({error}); run its command again on it, which sets aside "
            "what is damaged and computes it again, then merge"
        ) from None


def _text(cells: Path, mode: int, filename: Any, value: Any) -> bytes | None:
    if mode == MODE_RAW:
        return value if isinstance(value, bytes) else None
    if not isinstance(filename, str) or not LARGE_FILE.fullmatch(filename):
        return None
    try:
        return bounds.content_of(cells / filename, bounds.MAX_JSON_BYTES)
    except (OSError, bounds.BadFile):
        return None


def _opened(path: Path) -> sqlite3.Connection:
    """For reading; on a file system that is read-only as well, where there is nothing to be recovered."""
    address = f"file:{quote(os.fspath(path.absolute()))}"
    for mode in ("mode=rw", "immutable=1"):
        database = sqlite3.connect(f"{address}?{mode}", uri=True, timeout=60)
        try:
            database.execute("PRAGMA query_only = ON")
            database.execute("SELECT 1 FROM Cache LIMIT 1").fetchone()
        except sqlite3.Error as error:
            database.close()
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            readonly = code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
            if mode == "immutable=1" or not readonly or Path(f"{path}-wal").exists():
                raise
        else:
            return database
    raise AssertionError("unreachable")
