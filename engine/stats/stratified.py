"""A sample in which every unit has the same chance and every group gets its share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError

_PARTS = 10


def stratified_sample(
    groups: npt.NDArray[np.int64], spread: npt.NDArray[np.float64], count: int, seed: int | tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """`count` of U units, ascending; all U where there are no more.

    The units are put in order: by group, inside a group by tenths of `spread`, inside a tenth at random. One random
    number r in [0, 1) then takes those at floor((j + r) U / count), j = 0 .. count - 1 (Madow and Madow 1944). So each
    unit's chance is count / U, and neither a group nor a tenth of one differs from its share by one unit or more:
    plain means over the sample estimate those over all units. groups [U] from 0, spread [U] any finite numbers."""
    total = len(groups)
    if count < 0:
        raise InputError(f"a sample has 0 or more units, got {count}")
    if count in (0, total) or count > total:
        return np.arange(min(count, total), dtype=np.int64)
    generator = np.random.default_rng(seed)
    noise = generator.random(total)
    # Rank inside the group: place in the order by (group, spread) less where the group begins.
    inside = np.lexsort((noise, spread, groups))
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    tenth = np.empty(total, dtype=np.int64)
    tenth[inside] = _PARTS * (np.arange(total) - starts[groups[inside]]) // sizes[groups[inside]]
    order = np.lexsort((generator.random(total), tenth, groups))
    places = np.floor((np.arange(count) + generator.random()) * (total / count)).astype(np.int64)
    return np.sort(order[np.minimum(places, total - 1)])
