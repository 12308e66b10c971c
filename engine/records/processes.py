"""What a process that may be killed leaves in order: it ends with whoever started it, whose end of a pipe is its
standard input, which every system closes with its last holder; and its temporary folders each hold a lock, and the next
process removes those without."""

import _thread
import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

GRACE_S = 1.0  # from the interrupt to the end; cells and files are whole at any instant, so that nothing is lost by it


def end_with_stdin() -> None:
    """From now on the end of standard input interrupts this process, and ends it and its group if that does not."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    try:
        while os.read(0, 1024):  # not through sys.stdin: Python could not end while a thread waits inside of it
            pass
    except OSError:
        pass
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # ends a wait in the system as well
    else:
        _thread.interrupt_main()
    time.sleep(GRACE_S)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(130)


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
            folder = Path(tempfile.mkdtemp(prefix=self._prefix))
            lock = FileLock(folder / _LOCK, timeout=10)
            with suppress(OSError):  # another process took it for a left one before it was locked
                lock.acquire()
                if (folder / _LOCK).exists():
                    self._made, self._lock = folder, lock
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
