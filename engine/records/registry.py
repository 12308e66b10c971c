"""Things by name: built-in ones, registered ones, and those that installed packages bring along."""

import importlib
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from engine.records.errors import InputError, unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Entries of one kind by their ids, which are stored in results and never renamed. kind: in messages. built_in: id
    -> the module whose import registers it, in menu order.

    A package of its own brings entries by an entry point of `group` (`selector_audit.KINDs`): its name is the id, and
    importing its module has to register it. A broken one is named in a warning and leaves the others usable."""

    def __init__(self, kind: str, built_in: dict[str, str] | None = None, *, group: str = "") -> None:
        self.kind = kind
        self.group = f"selector_audit.{group or f'{kind}s'}"
        self.built_in = built_in or {}
        self.broken: dict[str, str] = {}  # plug-in -> why it could not be loaded
        self._entries: dict[str, tuple[T, str]] = {}  # id -> entry, where it is defined
        self._loaded = self._plug_ins_loaded = False
        self._lock = threading.RLock()
        self._here: ContextVar[dict[str, T] | None] = ContextVar(f"{kind} entries of one run", default=None)

    @property
    def here(self) -> dict[str, T]:
        """Entries that only this thread's run has."""
        return self._here.get() or {}

    def add_here(self, name: str, entry: T) -> None:
        """Register for this thread's run alone, or instead of what it had under this id."""
        self._here.set({**self.here, name: entry})

    @contextmanager
    def only_here(self) -> Iterator[None]:
        """What is registered inside by `add_here` is no entry afterwards, and what was one before is what it was."""
        token = self._here.set(dict(self.here))
        try:
            yield
        finally:
            self._here.reset(token)

    def add(self, name: str, entry: T, origin: object) -> None:
        """Register an entry. origin: its class or function; the same again, as on a reload, replaces itself.
        Errors: InputError for an id that something else has taken."""
        source = f"{getattr(origin, '__module__', '?')}.{getattr(origin, '__qualname__', '?')}"
        with self._lock:
            taken = self._entries.get(name)
            if taken and taken[1] != source:
                raise InputError(f"{self.kind} id {name!r} is taken by {taken[1]}; choose another id")
            self._entries[name] = (entry, source)

    def remove(self, name: str) -> None:
        """Take an entry out (for tests and notebooks)."""
        with self._lock:
            self._entries.pop(name, None)

    def get(self, name: str) -> T:
        """The entry. Errors: InputError with the nearest name, or why its plug-in could not be loaded."""
        if name in self.here:
            return self.here[name]
        self._load()
        if name in self._entries:
            return self._entries[name][0]
        if name in self.broken:
            raise InputError(f"{self.kind} {name!r} cannot be used: {self.broken[name]}")
        raise unknown(self.kind, name, self._entries)

    def names(self) -> list[str]:
        """Ids: the built-in ones in their order, then the others by id."""
        self._load()
        return [*self.built_in, *sorted({*self._entries, *self.here} - set(self.built_in))]

    def brought(self) -> list[T]:
        """What is registered and not built in, without importing what is built in."""
        with self._lock:
            self._load_plug_ins()
            return [self._entries[name][0] for name in sorted(set(self._entries) - set(self.built_in))]

    def offered(self) -> list[str]:
        """Ids without importing anything, for menus and checks; a plug-in that turns out broken is among them."""
        others = {*self._entries, *self.here, *_installed(self.group)} - set(self.built_in)
        return [*self.built_in, *sorted(others)]

    def __iter__(self) -> Iterator[T]:
        return iter([self.get(name) for name in self.names()])

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._entries or name in self.here

    def load_plug_in(self, entry_point: EntryPoint) -> None:
        """Load one entry point of the group."""
        try:
            with redirect_stdout(sys.stderr), plug_in_code(self.kind, entry_point.name):
                entry_point.load()
            if entry_point.name not in self._entries:
                raise InputError(f"{entry_point.value} registers no {self.kind} {entry_point.name!r}")
        except Exception as error:  # third-party code: whatever it raises must not take the others down
            reason = f"its plug-in {entry_point.value} cannot be loaded ({type(error).__name__}: {error})"
            self.broken[entry_point.name] = reason
            warnings.warn(
                f"{self.kind} {entry_point.name!r} is left out: {reason}; repair or uninstall it", stacklevel=2
            )

    def _load(self) -> None:
        """Import the built-in entries and the entry points, once."""
        with self._lock:
            if self._loaded:
                return
            for module in dict.fromkeys(self.built_in.values()):
                importlib.import_module(module)
            self._loaded = True
            self._load_plug_ins()

    def _load_plug_ins(self) -> None:
        if not self._plug_ins_loaded:
            self._plug_ins_loaded = True
            for entry_point in entry_points(group=self.group):
                self.load_plug_in(entry_point)


@contextmanager
def plug_in_code(kind: str, name: str) -> Iterator[None]:
    """Code that a plug-in may have brought: where it ends the program (`sys.exit`), that is an InputError that names
    it, so that neither a server's thread nor what others have to do ends with it."""
    try:
        yield
    except SystemExit as end:
        raise InputError(
            f"the {kind} {name!r} ended the program (sys.exit, {end.code!r}); repair or uninstall the package that "
            "brings it"
        ) from end


@cache
def _installed(group: str) -> frozenset[str]:
    """What packages bring, read once: every package on this machine is asked."""
    return frozenset(entry_points(group=group).names)


def modules(package: str, names: Sequence[str]) -> dict[str, str]:
    """Built-in entries that have a file of their id each."""
    return {name: f"{package}.{name.replace('-', '_')}" for name in names}
