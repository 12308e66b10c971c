"""Progress of a run: one type for bars and files. `--progress-file FILE` is what another process may read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from engine.records.errors import InputError
from engine.records.files import write_atomic

Progress = Callable[[str, int, int], None]  # stage, done, total
INTERVAL_S = 0.5  # between two writes of one stage


class ProgressFile:
    """Called with (stage, done, total); keeps one JSON object in the file, replaced atomically.

    {"stage": text, "done": int, "total": int, "seconds_left": float or null}: seconds_left of this stage only,
    from its own pace; null until it has moved. At most one write per `INTERVAL_S`, but the first and the last
    of a stage are always written. Errors: `InputError` where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stage = ""
        self._since_s = self._written_s = 0.0
        self._first_done = 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._since_s, self._first_done = stage, now, done
        elif done < total and now - self._written_s < INTERVAL_S:
            return
        moved = done - self._first_done
        left = round((now - self._since_s) / moved * (total - done), 1) if moved > 0 else None
        record = {"stage": stage, "done": done, "total": total, "seconds_left": left}
        try:
            write_atomic(self.path, (json.dumps(record) + "\n").encode())
        except OSError as error:
            raise InputError(f"cannot write {self.path} ({error.strerror}); give another --progress-file") from None
        self._written_s = now


class Stopwatch:
    """Wall time since it was made, in seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start
