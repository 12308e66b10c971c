"""Scores to a removal order: which row goes first, which last, with ties settled."""

from __future__ import annotations

from typing import Literal, get_args

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
    returns [N] int64, a permutation of 0..N-1
    """
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
    keys = values if order == "lerf" else -values.astype(np.float64)
    return np.argsort(keys, kind="stable").astype(np.int64)
