"""Progress of a run: one type for bars and files. `--progress-file FILE` is what another process may read; for people a
bar with done, total, elapsed and remaining time, one line per stage, or plain lines where no bar can be drawn."""

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich import progress as rich_bars
from rich.console import Console

from engine.records.errors import InputError
from engine.records.files import FileKind, check_file, check_folder_of, json_object, write_atomic
from engine.records.terminal import shown

Progress = Callable[[str, int, int], None]  # stage, done, total
SoFar = Callable[[], dict[str, object]]  # of a table that grows: {"table", "columns", "rows"}
INTERVAL_S = 0.5  # between two writes of one stage
LINE_INTERVAL_S = 10.0  # between two lines where bars cannot be drawn
CELLS = "cells"  # the stage that is over all cells of a command, whatever they are for


PROGRESS = FileKind(
    "a progress file",  # an empty one is what `mktemp` makes, and holds nothing to lose
    lambda path: not path.stat().st_size or {"stage", "done", "total", "seconds_left"} <= json_object(path).keys(),
    "--progress-file",
)


class ProgressFile:
    """Called with (stage, done, total); keeps one JSON object in the file, replaced atomically, at most once per
    `INTERVAL_S`, but for the first and the last of a stage. Errors: `InputError` at the start where the file is none of
    ours, or has no folder; what fails later is told once and does not end the run.

    {"stage": text, "done": int, "total": int, "seconds_left": float or null}: seconds_left of this stage only. Where
    the command tells its parts (`begin`), also "part": text, "number": int, from 1, "parts": int, of so many, and
    "seconds_left_of_all": float, null in stages other than `CELLS`, which is over all cells that are known to be
    wanted. And where a table grows cell by cell (`grow`), "so_far": {"table": its name, "columns": some of its columns,
    "rows": a list of lists}, null in the place of a number that is not finite."""

    def __init__(self, path: Path) -> None:
        check_file(path, PROGRESS)
        check_folder_of(path, PROGRESS.option, made=False)
        self.path = path
        self._failed = False
        self._stage = ""
        self._told: dict[str, object] = {}
        self._part: dict[str, object] = {}
        self._so_far: SoFar | None = None
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
        self._told = {"stage": stage, "done": done, "total": total, "seconds_left": left}
        self._write()
        self._written_s = now

    def begin(self, part: str, number: int, parts: int) -> None:
        """A part of the command begins; before the first stage nothing is written."""
        self._part = {"part": part, "number": number, "parts": parts}
        if self._told:
            self._write()

    def grow(self, so_far: SoFar) -> None:
        """From now on every write asks what is measured."""
        self._so_far = so_far

    def _write(self) -> None:
        record = {**self._told, **self._part}
        if self._so_far is not None:
            record["so_far"] = self._so_far()
        if self._part:
            record["seconds_left_of_all"] = self._told["seconds_left"] if self._stage == CELLS else None
        try:
            write_atomic(self.path, (json.dumps(record) + "\n").encode(), PROGRESS)
        except (OSError, InputError) as error:
            if not self._failed:
                sys.stderr.write(f"note: progress cannot be told ({error}); the run goes on\n")
            self._failed = True


def begin(progress: Progress | None, part: str, number: int, parts: int) -> None:
    """Tells whoever is told of progress, if he asks, which part of a command begins. number: from 1, of `parts`."""
    tell = getattr(progress, "begin", None)
    if tell is not None:
        tell(part, number, parts)


def grower(progress: Progress | None) -> Callable[[SoFar], None] | None:
    """What takes the word of a table that grows; None where nobody looks at one."""
    return getattr(progress, "grow", None)


_HERE = threading.local()  # .told: what this thread calls before each pass


@contextmanager
def each_pass(told: Callable[[], object]) -> Iterator[None]:
    """Inside, this thread calls `told()` before every pass that reads text or writes one more token of replies; it may
    raise to give up, and is called often."""
    before = getattr(_HERE, "told", None)
    _HERE.told = told
    try:
        yield
    finally:
        _HERE.told = before


def passing() -> None:
    """What is about to go through a model says so (`each_pass`)."""
    told = getattr(_HERE, "told", None)
    if told is not None:
        told()


@contextmanager
def progress_bars(console: Console, to_file: ProgressFile | None = None) -> Iterator["ProgressBars"]:
    """The bars begin with the first stage; to_file: what is told of them goes there, too."""
    columns = (
        rich_bars.TextColumn("{task.description:<24}", markup=False), rich_bars.BarColumn(),
        rich_bars.MofNCompleteColumn(), rich_bars.TimeElapsedColumn(), rich_bars.TextColumn("{task.fields[left]}"),
        rich_bars.TimeRemainingColumn(),
    )  # fmt: skip
    report = ProgressBars(rich_bars.Progress(*columns, console=console, transient=False), to_file)
    try:
        yield report
    finally:
        if report.tasks:  # else it never began, and its end would be an empty line
            report.bar.stop()


class ProgressBars:
    """Called with (stage, done, total), as every `Progress`. Where neither a terminal nor a notebook draws the bars,
    these are written once, at the end, and before it a line of what goes on, at most one per `LINE_INTERVAL_S`."""

    def __init__(self, bar: rich_bars.Progress, to_file: ProgressFile | None) -> None:
        self.bar, self.to_file = bar, to_file
        self.tasks: dict[str, Any] = {}
        self._drawn = bar.console.is_interactive or bar.console.is_jupyter
        self._line_s = bar.get_time()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self.tasks:
            self.bar.start()
        if stage not in self.tasks:
            word = "left, at least" if stage == CELLS else "left"  # budgets and verdicts ask for more cells later
            self.tasks[stage] = self.bar.add_task(shown(stage), total=total, left=word)
        self.bar.update(self.tasks[stage], completed=done, total=total)
        if not self._drawn and self.bar.get_time() - self._line_s >= LINE_INTERVAL_S:
            self._line_s = self.bar.get_time()
            left_s = self.bar.tasks[self.tasks[stage]].time_remaining
            left = f", {'at least ' * (stage == CELLS)}{timedelta(seconds=math.ceil(left_s))} left" if left_s else ""
            line = f"{shown(stage)}: {done:,} of {total:,}{left}"
            self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        if self.to_file is not None:
            self.to_file(stage, done, total)

    def begin(self, part: str, number: int, parts: int) -> None:
        if self.to_file is not None:
            self.to_file.begin(part, number, parts)

    @property
    def grow(self) -> Callable[[SoFar], None] | None:
        return self.to_file.grow if self.to_file is not None else None
