"""The index of a store: cells as JSON texts in a diskcache database, each beside the SHA-256 of its text.

Nothing is pickled and nothing pickled is ever read. Large cells lie in files of their own, as diskcache does it."""

import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

import diskcache
from diskcache.core import MODE_BINARY, MODE_PICKLE, MODE_RAW, MODE_TEXT, UNKNOWN
from filelock import FileLock

from engine.records.errors import InputError
from engine.records.files import sweep, temporary
from engine.records.hashing import Json
from engine.results.damage import aside, move_aside, tell, unusable

T = TypeVar("T")
_SETTINGS = {
    **diskcache.DEFAULT_SETTINGS,  # all of them, so that none is read from a damaged database
    "size_limit": 2**62,  # diskcache evicts silently at its default of 1 GiB
    "eviction_policy": "none",
    "disk_min_file_size": 2**20,
}
LARGE_FILE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val")  # as diskcache names the files of large cells
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HURT = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH,
         sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_FORMAT,
         sqlite3.SQLITE_EMPTY, sqlite3.SQLITE_NOTFOUND, sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_SCHEMA)  # fmt: skip
_LEAST_BYTES = 512  # SQLite's smallest page
_TRIES = 4
_BUSY_S = 60


class Unreadable:
    """Stands for a value that is not what this software writes. content: what is there instead."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content


class TextDisk(diskcache.Disk):
    """Keys are text, values are bytes; a pickle is an error, not loaded; no file outside the folder is touched."""

    def put(self, key: Any) -> tuple[str, bool]:
        if not isinstance(key, str):
            raise TypeError(f"store keys are text, got {type(key).__name__}")
        return key, True

    def get(self, key: Any, raw: Any) -> str:
        if not raw or not isinstance(key, str):
            raise self._foreign()
        return key

    def store(self, value: bytes, read: bool, key: Any = UNKNOWN) -> Any:
        return super().store(value, False, key=key)

    def fetch(self, mode: Any, filename: Any, value: Any, read: bool) -> bytes | Unreadable:
        if mode in (MODE_PICKLE, MODE_TEXT):
            raise self._foreign()
        if mode == MODE_RAW:
            return value if isinstance(value, bytes) else Unreadable(repr(value).encode())
        if mode == MODE_BINARY and isinstance(filename, str) and LARGE_FILE.fullmatch(filename):
            with suppress(OSError):  # to diskcache it would mean that there is no such entry
                return Path(self._directory, filename).read_bytes()
        return Unreadable()

    def remove(self, file_path: Any) -> None:
        if isinstance(file_path, str) and LARGE_FILE.fullmatch(file_path):
            super().remove(file_path)

    def _foreign(self) -> InputError:
        return InputError(
            f"the index {self._directory} holds an entry that this software did not write, and does not read; "
            "move that folder away, or give another --store"
        )


class Cells:
    """`cells/` of a store. An index that is damaged as a whole is set aside, and begun anew with what is right of it.
    Errors of all methods: InputError where the folder cannot be read or written, or holds a pickle."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._folder = store / "cells"
        self._lock = store / ".cells.lock"  # where an index was found damaged
        self._cache: diskcache.Cache | None = None
        self._opened_file: int | None = None
        self._do(lambda cache: None)

    def get(self, key: str) -> Json | None:
        """The cell under `key`, None if it is not there."""
        read = self._read(key)
        return read[1] if read and isinstance(read[1], dict) else None

    def text(self, key: str) -> bytes | None:
        """The text of a cell, None if it is not there."""
        read = self._read(key)
        return read[0] if read else None

    def put(self, key: str, cell: Json) -> None:
        """Keep a cell; it is on disk when this returns, and wholly or not at all after a kill."""
        content = json.dumps(cell, separators=(",", ":")).encode()
        self._do(lambda cache: cache.set(key, content, tag=checksum(key, content)))

    def put_texts(self, cells: Sequence[tuple[str, bytes]]) -> None:
        """Keep cells by their texts: all of them or, after a kill, none."""

        def put(cache: diskcache.Cache) -> None:
            with cache.transact():
                for key, content in cells:
                    cache.set(key, content, tag=checksum(key, content))

        self._do(put)

    def _read(self, key: str) -> tuple[bytes, Any] | None:
        """Text and what it says, None if it is not there; a damaged one is set aside."""
        for last in (False, True):  # another process may put a large cell anew between index and file
            content, told = self._do(lambda cache: cache.get(key, tag=True))
            if content is None:
                return None
            if isinstance(content, bytes) and told in (None, checksum(key, content)):
                with suppress(ValueError, RecursionError):
                    return content, json.loads(content)
            if last:
                self._set_aside(key, content)
        return None

    def keys(self) -> list[str]:
        return self._do(lambda cache: list(cache.iterkeys()))

    def __len__(self) -> int:
        return self._do(len)

    def close(self) -> None:
        if self._cache is not None:
            with suppress(sqlite3.Error):
                self._cache.close()
            self._cache = None

    def _set_aside(self, key: str, content: bytes | Unreadable) -> None:
        name = key if _PLAIN.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()
        tell(self._store, f"cell {name[:12]}…")
        try:
            free_name = aside(self._store, f"{name}.json")
            free_name.write_bytes(content if isinstance(content, bytes) else content.content)
        except OSError as error:
            raise unusable(self._store, error) from None
        self._do(lambda cache: cache.delete(key))

    def _do(self, action: Callable[[diskcache.Cache], T]) -> T:
        """The action; where the database is hurt, once more on it opened anew, then on one that took its place.
        Where another process has set aside the index that is open here, SQLite may call that anything, an I/O error
        among others: its own files are beside a database of another time."""
        for again in range(_TRIES):
            moved = False
            try:
                if self._cache is None:
                    with self._alone() if again or self._lock.exists() else nullcontext():
                        self._cache = self._open()
                return action(self._cache)
            except InputError:
                raise
            except diskcache.Timeout:
                self._check_writable()
                if again or self._index_file() == self._opened_file:  # else another process has set ours aside
                    raise unusable(self._store, f"another process has held it for {_BUSY_S} s") from None
            except sqlite3.Error as error:
                moved = self._index_file() != self._opened_file
                if not moved and not _hurt(first := _first(error), self._folder):
                    raise unusable(self._store, first) from None
            except OSError as error:
                raise unusable(self._store, error) from None
            except (TypeError, ValueError, LookupError, AttributeError, AssertionError, OverflowError):
                pass  # rows that diskcache cannot have written
            self.close()
            if again and not moved:  # the one that another process put in its place is opened first
                self._begin_anew()
        raise unusable(self._store, f"{self._folder} is damaged and could not be replaced")

    def _alone(self) -> FileLock:
        """While it is held no other process puts a new index in the place of a damaged one; a kill ends it."""
        return FileLock(self._lock, timeout=_BUSY_S)

    def _open(self) -> diskcache.Cache:
        """The index; a new one gets its name when it is whole, so that an empty file is damage and not a beginning."""
        path = self._folder / "cache.db"
        if not os.path.lexists(path):
            self._make()
        self._opened_file = self._index_file()
        if path.is_file() and path.stat().st_size < _LEAST_BYTES:
            raise ValueError("no database is so small, though SQLite would begin one in it")
        return _opened(self._folder)

    def _index_file(self) -> int | None:
        """Which file the index is now."""
        try:
            return (self._folder / "cache.db").stat().st_ino
        except OSError:
            return None

    def _make(self, *, anew: bool = False) -> None:
        """A new index; anew: of the cells that are right in the one that is there, which is set aside."""
        new = temporary(self._folder)
        sweep(self._folder)
        try:
            with closing(_opened(new)) as cache, cache.transact():
                for key, content, told in _right_cells(self._folder) if anew else ():
                    cache.set(key, content, tag=told)
            if anew:
                move_aside(self._store, self._folder)
            with suppress(OSError):  # another process was at it too, and is done
                os.rename(new, self._folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _check_writable(self) -> None:
        """diskcache says Timeout for whatever keeps it from writing: the real reason as an InputError, if it lasts."""
        try:
            with closing(sqlite3.connect(self._folder / "cache.db", timeout=0, isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute("ROLLBACK")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise unusable(self._store, error) from None

    def _begin_anew(self) -> None:
        """Set the whole index aside, with a new one of the cells whose checksum is right in its place; unless another
        process has done so since it was found damaged.

        Cells of earlier versions, without a checksum, are not taken over from a damaged index: they are computed again.
        Another process that has the old one open goes on in it; what it finishes there is computed again by others."""
        tell(self._store, "cells/cache.db")
        try:
            with self._alone():
                if self._index_file() == self._opened_file:
                    self._make(anew=True)
        except (OSError, sqlite3.Error, diskcache.Timeout) as error:
            raise unusable(self._store, _first(error)) from None


def checksum(key: str, content: bytes) -> str:
    """SHA-256 over the key and the text of a cell: a text under another key is as wrong as another text."""
    return hashlib.sha256(key.encode() + b"\n" + content).hexdigest()


class _Index(diskcache.Cache):
    """One that cannot be opened leaves no connection behind."""

    def __init__(self, directory: str, **more: Any) -> None:
        try:
            super().__init__(directory, **more)
        except BaseException:
            with suppress(AttributeError):  # before there was any
                self.close()
            raise


def _opened(folder: Path) -> diskcache.Cache:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _Index(str(folder), timeout=_BUSY_S, disk=TextDisk, **_SETTINGS)


def _first(error: BaseException) -> BaseException:
    """What went wrong before the transaction could not be taken back either."""
    while isinstance(error.__context__, sqlite3.Error):
        error = error.__context__
    return error


def _hurt(error: BaseException, folder: Path) -> bool:
    """Is it the database's own fault, not that of its disk or of another process?"""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # Python's own, of text that is no UTF-8 and of numbers out of range
        return True
    if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
        path = folder / "cache.db"
        return os.path.lexists(path) and not path.is_file()
    if code == sqlite3.SQLITE_READONLY_DBMOVED:  # another process has set the index aside that is open here
        return True
    return code & 0xFF in _HURT


def _right_cells(folder: Path) -> Iterator[tuple[str, bytes, str]]:
    """Key, text and checksum of every cell that can still be read and fits its checksum: from both ends up to what
    is damaged."""
    seen: set[str] = set()
    for direction in ("ASC", "DESC"):
        if not (folder / "cache.db").is_file():
            return
        with suppress(sqlite3.Error), closing(sqlite3.connect(folder / "cache.db", timeout=_BUSY_S)) as database:
            database.execute("PRAGMA writable_schema = ON")  # reads on where sizes and schema do not fit each other
            database.text_factory = lambda text: text.decode(errors="replace")
            what = "SELECT key, tag, mode, filename, value FROM Cache NOT INDEXED ORDER BY rowid"
            for key, told, mode, filename, value in database.execute(f"{what} {direction}"):
                content = value
                if mode == MODE_BINARY and isinstance(filename, str) and LARGE_FILE.fullmatch(filename):
                    with suppress(OSError):
                        content = (folder / filename).read_bytes()
                right = isinstance(key, str) and isinstance(content, bytes) and key not in seen
                if right and told == checksum(key, content):
                    seen.add(key)
                    yield key, content, told
