"""A lock that is waited for with patience: the waiter is told how long, and may give up."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

POLL_S = 0.2
OnWait = Callable[[float], object]


def patient(_seconds: float) -> None:
    """Waits as long as it takes."""


@contextmanager
def held(lock: Any, on_wait: OnWait = patient) -> Iterator[None]:
    """Hold a lock; while it is not free, tell how long we have waited (the teller may raise to give up). lock: one that
    its thread may take again (`threading.RLock`) is free afterwards although Ctrl-C comes at the very instant at which
    it is taken."""
    mine = getattr(lock, "_is_owned", bool)  # by this thread
    if mine():  # there is nobody to wait for, and `with` takes a lock in one step
        with lock:
            yield
        return
    start = time.monotonic()
    try:
        while not lock.acquire(timeout=POLL_S):
            on_wait(time.monotonic() - start)
    except BaseException:
        if mine():
            lock.release()
        raise
    try:
        yield
    finally:
        lock.release()
