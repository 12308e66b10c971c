"""A lock that is waited for with patience: the waiter is told how long, and may give up."""

from __future__ import annotations

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
    """Hold a lock; while it is not free, tell how long we have waited (the teller may raise to give up)."""
    start = time.monotonic()
    while not lock.acquire(timeout=POLL_S):
        on_wait(time.monotonic() - start)
    try:
        yield
    finally:
        lock.release()
