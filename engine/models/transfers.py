"""A download as others see it while it runs: bytes, time left, and a stop."""

import threading
import time
from collections import deque
from typing import NamedTuple

_WINDOW_S = 20.0  # of the pace that the time left is told from
_SAMPLE_S = 0.5
_LEAST_S = 1.0  # before that the pace says little


class Stopped(Exception):
    """Raised in the threads of a download that was stopped."""


class Progress(NamedTuple):
    """Bytes that are on this machine, bytes in all, and seconds until then at the pace of the last 20 s.
    `total` is None before it is known, `seconds_left` in the first second and as long as nothing has come."""

    fetched: int
    total: int | None
    seconds_left: float | None


class Transfer:
    """Given to a download by whoever wants to watch or stop it. Safe to use from several threads."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._fetched = 0
        self._total: int | None = None
        self._samples: deque[tuple[float, int]] = deque()  # when, bytes that had come by then

    def stop(self) -> None:
        """Ask the download to end; it does at its next piece. What has come is kept."""
        self.stopping.set()

    def check(self) -> None:
        """Errors: `Stopped` once it was asked to end."""
        if self.stopping.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep, unless it is asked to end. Errors: `Stopped`."""
        if self.stopping.wait(seconds):
            raise Stopped

    def expect(self, total: int, there: int) -> None:
        """Bytes in all, and those of them that are on this machine already."""
        with self._lock:
            self._total, self._fetched = total, there
            self._samples = deque([(time.monotonic(), there)])

    def add(self, count: int) -> None:
        """So many bytes more have come; negative where some have to come again."""
        now = time.monotonic()
        with self._lock:
            self._fetched += count
            if count < 0:
                self._samples.clear()
            if not self._samples or now - self._samples[-1][0] >= _SAMPLE_S:
                self._samples.append((now, self._fetched))
            while len(self._samples) > 2 and now - self._samples[1][0] > _WINDOW_S:
                self._samples.popleft()

    @property
    def progress(self) -> Progress:
        now = time.monotonic()
        with self._lock:
            left = None
            if self._total is not None and self._samples:
                since, before = self._samples[0]
                if self._fetched > before and now - since >= _LEAST_S:
                    left = (now - since) / (self._fetched - before) * max(self._total - self._fetched, 0)
            return Progress(self._fetched, self._total, left)


def size_text(size_bytes: int) -> str:
    """`12.3 MiB`, `1.21 GiB`."""
    return f"{size_bytes / 2**30:.2f} GiB" if size_bytes >= 2**29 else f"{size_bytes / 2**20:.1f} MiB"
