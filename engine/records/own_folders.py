"""Temporary folders of processes that may be killed: each holds a lock, and the next process removes those without."""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

_LOCK = ".lock"


class OwnFolder:
    """A temporary folder of this process, made when it is asked for. prefix: of its name, by which others find it.
    Before it is made, folders of this prefix and user whose process is no more are removed; others stay."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._made: Path | None = None
        self._lock: FileLock | None = None
        remove_left(prefix)

    @property
    def path(self) -> Path:
        while self._made is None:
            made = Path(tempfile.mkdtemp(prefix=self._prefix))
            lock = FileLock(made / _LOCK, timeout=10)
            with suppress(OSError):  # another process took it for a left one before it was locked
                lock.acquire()
                if (made / _LOCK).exists():
                    self._made, self._lock = made, lock
        return self._made

    def close(self) -> None:
        """Remove it; asked again, it is made anew."""
        if self._made is not None and self._lock is not None:
            shutil.rmtree(self._made, ignore_errors=True)
            self._lock.release()
            self._made = self._lock = None


def remove_left(prefix: str) -> list[Path]:
    """Remove folders of this prefix that hold a lock which nobody holds; returns what went. Links are left alone."""
    gone = []
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        own = not path.is_symlink() and path.is_dir() and (path / _LOCK).is_file()
        if not own or (hasattr(os, "getuid") and path.stat().st_uid != os.getuid()):
            continue
        with suppress(Timeout, OSError), FileLock(path / _LOCK, timeout=0):
            shutil.rmtree(path, ignore_errors=True)
            gone.append(path)
    return gone
