"""Measures for tests of runners: of the number of rows, and one that is made of another one's results."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.edits.edit import edit_of
from engine.measures.base import Derived, Measure
from engine.models.loading import LoadedModel
from engine.run.runner import Cell


@dataclass(frozen=True)
class Sized(Measure[int]):
    """What measures of the number of an edit's rows share: `several` edits in one pass; asked: what a test notes."""

    several: int = 1
    asked: list[Any] = field(default_factory=list, compare=False)
    kind = "size"

    def encode(self, result: int) -> dict[str, Any]:
        return {"size": result}

    def decode(self, stored: dict[str, Any]) -> int:
        return int(stored["size"])

    def together(self, loaded: LoadedModel) -> int:
        return self.several


@dataclass(frozen=True)
class Doubled(Derived[int]):
    """Twice the result of `base`."""

    base: Any
    kind = "doubled"

    def record(self, loaded: LoadedModel) -> dict[str, Any]:
        return self.base.record(loaded)

    def encode(self, result: int) -> dict[str, Any]:
        return {"doubled": result}

    def decode(self, stored: dict[str, Any]) -> int:
        return int(stored["doubled"])

    def derive(self, base: int) -> int:
        return 2 * base


def cells(loaded: LoadedModel, measure: Any, sizes: Iterable[int] = (0, 1, 2, 3)) -> list[Cell[int]]:
    return [Cell(loaded, edit_of(range(n), loaded.rows.n_rows), measure) for n in sizes]
