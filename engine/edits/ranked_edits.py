"""Rankings of all rows, and the edits that are their beginnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.edits.edit import ZERO, Edit, first_of
from engine.edits.masks import removed_count
from engine.stats.removal_order import removal_order

if TYPE_CHECKING:
    from engine.models.row_index import Side
    from engine.models.units import Units


@dataclass(frozen=True, eq=False)
class Ranking:
    """One global ranking of all rows, or of units of another kind; of a seeded selector one per seed. Sorted once per
    order: the edits of all rates share it. ids, side: what the edit of a unit names, and where it acts
    (`engine.models.units`); None: unit i is row i."""

    selector: str
    seed: int | None
    scores: npt.NDArray[np.floating]  # [N], higher = more important
    intervention: str = ZERO
    ids: npt.NDArray[np.int64] | None = None
    side: Side = "output"
    _orders: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict, repr=False)
    _edits: dict[tuple[str, int], Edit] = field(default_factory=dict, repr=False)

    def order(self, order: str) -> npt.NDArray[np.int64]:
        """All rows (or units, by number) in the order of their removal, `lerf` or `morf`."""
        if order not in self._orders:
            self._orders[order] = removal_order(self.scores, order)
        return self._orders[order]

    def edit(self, order: str, rate: float) -> Edit:
        """The edit of the first `round(rate * N)` rows or units."""
        return self.first(order, removed_count(rate, self.scores.size))

    def first(self, order: str, count: int) -> Edit:
        if (order, count) not in self._edits:
            self._edits[order, count] = first_of(
                self.order(order), count, intervention=self.intervention, ids=self.ids, side=self.side
            )
        return self._edits[order, count]

    def over(self, units: Units, intervention: str) -> Ranking:
        """The ranking of these units by the rows' scores (`Units.scores`), under another intervention."""
        if units.are_rows:
            return Ranking(self.selector, self.seed, self.scores, intervention, _orders=self._orders)
        scores = units.scores(np.asarray(self.scores, dtype=np.float32))
        return Ranking(self.selector, self.seed, scores, intervention, units.ids, units.side)


def rankings(scores: Mapping[str, npt.ArrayLike], seeds: Sequence[int], intervention: str = ZERO) -> Iterator[Ranking]:
    """The rankings behind `scores`: [N] gives one, [seeds, N] one per seed."""
    for selector, values in scores.items():
        array = np.asarray(values, dtype=np.float32)
        if array.ndim == 1:
            yield Ranking(selector, None, array, intervention)
        else:
            for seed, row in zip(seeds, array, strict=True):
                yield Ranking(selector, seed, row, intervention)
