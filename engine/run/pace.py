"""How long measures take here: timed while cells are computed, to say beforehand how long the rest will take."""

from collections.abc import Iterable
from typing import Any


class Pace:
    """Seconds per unit of work, by kind of measure. A measure's `size` is its work: prompts to answer, windows to read.
    What an edited model writes may be longer or shorter than what was timed, so that sums are estimates."""

    def __init__(self) -> None:
        self._timed: dict[str, tuple[float, float]] = {}  # kind -> (seconds, work)

    def __contains__(self, measure: Any) -> bool:
        return measure.kind in self._timed

    def add(self, measure: Any, edits: int, elapsed_s: float) -> None:
        """A measure was taken under so many edits."""
        seconds, work = self._timed.get(measure.kind, (0.0, 0.0))
        self._timed[measure.kind] = seconds + elapsed_s, work + edits * measure.size

    def seconds(self, measures: Iterable[Any]) -> float | None:
        """For taking each of them under one edit; None where a kind among them was never timed."""
        total = 0.0
        for measure in measures:
            if measure not in self:
                return None
            seconds, work = self._timed[measure.kind]
            total += seconds / work * measure.size
        return total


def told(seconds: float) -> str:
    """`about 40 s`, `about 12 min`, `about 3.5 h`."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 90 * 60 else f"about {seconds / 3600:.1f} h"
