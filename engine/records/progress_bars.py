"""Progress for people: a bar with done, total, elapsed and remaining time, one line per stage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress as Bar,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from engine.records.progress import ProgressFile, SoFar
from engine.records.terminal import shown


@contextmanager
def progress_bars(console: Console, to_file: ProgressFile | None = None) -> Iterator["ProgressBars"]:
    """The bars begin with the first stage; to_file: what is told of them goes there, too."""
    columns = (
        TextColumn("{task.description:<24}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    report = ProgressBars(Bar(*columns, console=console, transient=False), to_file)
    try:
        yield report
    finally:
        if report.tasks:  # else it never began, and its end would be an empty line
            report.bar.stop()


class ProgressBars:
    """Called with (stage, done, total), as every `Progress`."""

    def __init__(self, bar: Bar, to_file: ProgressFile | None) -> None:
        self.bar, self.to_file = bar, to_file
        self.tasks: dict[str, Any] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self.tasks:
            self.bar.start()
        if stage not in self.tasks:
            self.tasks[stage] = self.bar.add_task(shown(stage), total=total)
        self.bar.update(self.tasks[stage], completed=done, total=total)
        if self.to_file is not None:
            self.to_file(stage, done, total)

    def begin(self, part: str, number: int, parts: int) -> None:
        if self.to_file is not None:
            self.to_file.begin(part, number, parts)

    @property
    def grow(self) -> Callable[[SoFar], None] | None:
        return self.to_file.grow if self.to_file is not None else None
