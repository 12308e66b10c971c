"""Rankings of all rows, and the edits that are their beginnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.edits.edit import ZERO, Edit, first_of
from engine.edits.masks import removed_count
from engine.stats.removal_order import removal_order


@dataclass(frozen=True, eq=False)
class Ranking:
    """One global ranking of all rows. A seeded selector gives one per seed, every other selector one.

    Sorted once per order; the edits of all rates share that order.
    """

    selector: str
    seed: int | None
    scores: npt.NDArray[np.float32]  # [N], higher = more important
    intervention: str = ZERO
    _orders: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict, repr=False)
    _edits: dict[tuple[str, int], Edit] = field(default_factory=dict, repr=False)

    def order(self, order: str) -> npt.NDArray[np.int64]:
        """All row ids in the order of their removal, `lerf` or `morf`."""
        if order not in self._orders:
            self._orders[order] = removal_order(self.scores, order)
        return self._orders[order]

    def edit(self, order: str, rate: float) -> Edit:
        """The edit of the first `round(rate * N)` rows."""
        return self.first(order, removed_count(rate, self.scores.size))

    def first(self, order: str, count: int) -> Edit:
        """The edit of the first `count` rows."""
        if (order, count) not in self._edits:
            self._edits[order, count] = first_of(self.order(order), count, intervention=self.intervention)
        return self._edits[order, count]


def rankings(scores: Mapping[str, npt.ArrayLike], seeds: Sequence[int], intervention: str = ZERO) -> Iterator[Ranking]:
    """The rankings behind `scores`: [N] gives one, [seeds, N] one per seed."""
    for selector, values in scores.items():
        array = np.asarray(values, dtype=np.float32)
        if array.ndim == 1:
            yield Ranking(selector, None, array, intervention)
        else:
            for seed, row in zip(seeds, array, strict=True):
                yield Ranking(selector, seed, row, intervention)
