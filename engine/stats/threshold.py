"""A threshold on one number that tells two groups apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError


class Threshold(NamedTuple):
    """`holds` is true above the value, or below it. f1: on the numbers that it was chosen on."""

    value: float
    above: bool
    f1: float

    def holds(self, numbers: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Is each number on the side of the positives? The value itself is on neither."""
        given = np.asarray(numbers, dtype=np.float64)
        return given > self.value if self.above else given < self.value


def best_threshold(positive: Sequence[float], negative: Sequence[float]) -> Threshold:
    """The threshold and the side with the largest F1 = 2 TP / (2 TP + FP + FN) of finding the positives.

    Tried are all midpoints between neighbouring distinct numbers, and one below and one above all of them. Ties go to
    the wider gap between the neighbours, then to the lower value, then to `above`. `InputError` without numbers of
    each kind, or with one that is not finite."""
    if not len(positive) or not len(negative) or not np.isfinite([*positive, *negative]).all():
        raise InputError(
            f"a threshold needs finite numbers of both kinds, got {len(positive)} positives, {len(negative)} negatives"
        )
    yes, no = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    values = np.unique([*yes, *no])
    middle = (values[1:] + values[:-1]) / 2
    step = 1.0 if len(values) < 2 else float(values[-1] - values[0])
    cuts = np.array([values[0] - step, *middle, values[-1] + step])
    gaps = np.array([0.0, *np.diff(values), 0.0])
    best: tuple[float, float, float, bool] | None = None
    for above in (True, False):
        hits, wrong = ((numbers[:, None] > cuts if above else numbers[:, None] < cuts).sum(0) for numbers in (yes, no))
        f1 = 2 * hits / (hits + wrong + len(yes))  # 2 TP + FP + FN = TP + FP + positives
        for place in range(len(cuts)):
            one = (float(f1[place]), float(gaps[place]), -float(cuts[place]), above)
            best = one if best is None or one > best else best
    assert best is not None
    return Threshold(-best[2], best[3], best[0])
