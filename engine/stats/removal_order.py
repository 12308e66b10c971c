"""Scores to a removal order: which row goes first, which last, with ties settled."""

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError, unknown

Order = Literal["lerf", "morf"]
ORDERS: tuple[Order, ...] = get_args(Order)


def removal_order(scores: npt.ArrayLike, order: str) -> npt.NDArray[np.int64]:
    """All row ids in the order of their removal.

    `lerf` (least relevant first) removes the lowest scores first, `morf` (most relevant first) the
    highest; rows of equal score go in the order of their row id under both, so that a mask never
    depends on how a sort happens to treat ties. Samek et al. 2017; the paper, section 3.1.

    scores  [N] real, finite
    returns [N] int64, a permutation of 0..N-1"""
    keys = _keys(scores, order)
    if np.asarray(scores).dtype == np.float32 and keys.size < 2**32:
        return _sorted_float32(np.asarray(scores), order)
    return np.argsort(keys, kind="stable").astype(np.int64)


def removed_first(scores: npt.ArrayLike, order: str, count: int) -> npt.NDArray[np.int64]:
    """The first `count` rows of `removal_order`, as ascending ids, without sorting the others.
    scores  [N] real, finite
    returns [min(count, N)] int64"""
    keys = _keys(scores, order)
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    if count >= keys.size:
        return np.arange(keys.size, dtype=np.int64)
    last = np.partition(keys, count - 1)[count - 1]
    inside = keys < last
    equal = np.flatnonzero(keys == last)  # by their ids, as many as are left
    inside[equal[: count - int(np.count_nonzero(inside))]] = True
    return np.flatnonzero(inside).astype(np.int64)


def _sorted_float32(scores: npt.NDArray[np.float32], order: str) -> npt.NDArray[np.int64]:
    """The same order by one sort of whole numbers, which takes less than half of the time: the bits of a score, put so
    that they grow with it, and below them its row id. [N] -> [N]"""
    sign = np.uint32(1 << 31)
    bits = np.ascontiguousarray(scores).view(np.uint32).copy()
    bits[bits == sign] = 0  # -0 is 0
    bits = np.where(bits & sign, ~bits, bits | sign)
    keys = (bits if order == "lerf" else ~bits).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(keys.size, dtype=np.uint64)
    keys.sort()
    keys &= np.uint64(2**32 - 1)
    return keys.astype(np.int64)


def _keys(scores: npt.ArrayLike, order: str) -> npt.NDArray[Any]:
    """What goes first has the smallest key, equal ones go by their ids."""
    if order not in ORDERS:
        raise unknown("order", order, ORDERS)
    values = np.asarray(scores)
    if values.ndim != 1:
        raise InputError(f"scores of one ranking have shape [rows], got {list(values.shape)}")
    finite = np.isfinite(values)
    if not finite.all():
        raise InputError(
            f"{int((~finite).sum())} of {values.size} scores are not finite, the first at row "
            f"{int(np.argmin(finite))}; a ranking needs finite scores: compute them again in float32 or bfloat16"
        )
    return values if order == "lerf" else -values.astype(np.float64)
