"""The runs that are under way on a store: each holds a lock of the system, which ends with its process, beside which
stands what it is (process, its start, command, machine), for people and for stopping it."""

import hashlib
import json
import os
import platform
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import write_atomic

FOLDER = "running"
_PATIENCE_S = 1.0  # who only looks holds a lock for an instant
_CANNOT = (OSError, NotImplementedError)  # a store that is read-only, or on a disk without locks


@dataclass(frozen=True)
class Running:
    """A run. started: of its process, as the system counts, empty where it does not say. by_app: by the app's Start."""

    pid: int
    started: str
    machine: str
    command: str
    since: str
    by_app: bool

    @property
    def here(self) -> bool:
        """Is this very process on this machine?"""
        return self.machine == platform.node() and self.started == _started(self.pid)


@contextmanager
def claimed(store: Path, names: Sequence[str], words: Sequence[str]) -> Iterator[None]:
    """This process is the only one of these names on the store while it is inside. words: its command.
    Errors: InputError that names the process where another one is. A store without locks is left as it is."""
    by_app = os.environ.get("SELECTOR_AUDIT_APP") == "1"
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    command = shlex.join(["selector-audit", *words])
    mine = Running(os.getpid(), _started(os.getpid()), platform.node(), command, now, by_app)
    with ExitStack() as stack:
        for name in names:
            path = store / FOLDER / hashlib.sha256(name.encode()).hexdigest()[:24]
            try:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                stack.enter_context(FileLock(path.with_suffix(".lock"), timeout=_PATIENCE_S))
            except Timeout:
                raise _twice(_read(path.with_suffix(".json"))) from None
            except _CANNOT:
                continue
            stack.callback(path.with_suffix(".json").unlink, missing_ok=True)
            write_atomic(path.with_suffix(".json"), json.dumps(asdict(mine)).encode())
        yield


def _twice(other: Running | None) -> InputError:
    if other is None:
        return InputError("the same run is under way on this store; wait for it")
    where = "" if other.machine == platform.node() else f" on {other.machine}"
    return InputError(
        f"the same run is under way on this store: process {other.pid}{where}, since {other.since} ({other.command}); "
        f"wait for it, or stop it on the page Runs or with `kill {other.pid}`{where}: what it has finished is kept"
    )


def running(store: Path) -> list[Running]:
    """The runs that are under way on the store, the oldest first. Records of those that ended are removed."""
    by_process = dict[int, Running]()
    for path in sorted((store / FOLDER).glob(f"{'[0-9a-f]' * 24}.json")):
        try:
            with FileLock(path.with_suffix(".lock"), timeout=0):
                path.unlink(missing_ok=True)  # nobody holds it: it was killed
        except Timeout:
            if one := _read(path):
                by_process[one.pid] = one
        except _CANNOT:
            continue
    return sorted(by_process.values(), key=lambda one: one.since)


def stop(store: Path, one: Running, grace_s: float = 10.0) -> None:
    """Interrupt it, then terminate, then kill it, with time in between; returns at once.
    Errors: InputError where it has ended, is on another machine, or is another user's."""
    if one not in running(store) or not one.here:
        where = f"on {one.machine}" if one.machine != platform.node() else "over"
        raise InputError(f"process {one.pid} is {where}: it cannot be stopped from here")
    try:
        os.kill(one.pid, signal.SIGINT if os.name != "nt" else signal.SIGTERM)
    except OSError as error:
        raise InputError(f"process {one.pid} cannot be stopped ({error.strerror}); ask whoever started it") from None
    threading.Thread(target=_insist, args=(store, one, grace_s), daemon=True).start()


def _insist(store: Path, one: Running, grace_s: float) -> None:
    for kind in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        end = time.monotonic() + grace_s / 2
        while time.monotonic() < end:
            if one not in running(store):
                return
            time.sleep(0.2)
        if one.here:
            with suppress(OSError):
                os.kill(one.pid, kind)


def _read(path: Path) -> Running | None:
    try:
        return Running(**bounds.json_of(path))
    except (OSError, ValueError, TypeError):
        return None


def _started(pid: int) -> str:
    """When a process began, in the system's own count; empty where it does not say (there the lock alone speaks)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
