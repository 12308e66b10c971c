"""What a sample of single units says of all of them, and of a selector's scores. Needs no torch.

An effect is NLL with the unit alone removed minus NLL of the unedited model: above zero the removal hurts, below it
helps. Units are sampled with equal chances (`stratified_sample`). Binomial intervals are then rather too wide: strata
and a sample that is a large part of all units only take variance away (Hoeffding 1956).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError
from engine.stats.intervals import Interval, clopper_pearson, student_t, wilson
from engine.stats.rank_interval import finite
from engine.stats.removal_order import removal_order

CONFIDENCE = 0.95
Effects = npt.NDArray[np.float64]


class Rate(NamedTuple):
    """A share of n with its 95% interval."""

    value: float
    interval: Interval
    n: int


def helping(effects: npt.ArrayLike) -> Rate:
    """The share of units whose removal lowers the NLL, with Wilson's interval."""
    values = finite(effects)
    count = int((values < 0).sum())
    return Rate(count / values.size, wilson(count, values.size, CONFIDENCE), values.size)


def clearly_helping(effects: Sequence[float], errors: Sequence[float | None], blocks: Sequence[int]) -> float:
    """The share of units whose effect lies below zero with the whole of its 95% interval, effect +- t error.

    t: Student's two-sided quantile at blocks - 1 degrees of freedom, the numbers of blocks of evaluation text that the
    errors rest on (`engine.stats.blocks`): of units without any effect about 2.5% are counted, however few blocks there
    are. No correction for their number: it is a share, no list of units. A unit without an error is not counted, and
    one whose windows all say the same has an error of 0.
    """
    if not len(effects) == len(errors) == len(blocks) or not len(effects):
        counts = f"{len(effects)} effects, {len(errors)} errors and {len(blocks)} numbers of blocks"
        raise InputError(f"every effect needs its error or None, and its blocks, got {counts}")
    t = {count: student_t(count - 1, CONFIDENCE) for count in set(blocks) if count > 1}
    each = zip(effects, errors, blocks, strict=True)
    return sum(effect < -t[count] * error for effect, error, count in each if error is not None) / len(effects)


def sign_agreement(scores: npt.ArrayLike, effects: npt.ArrayLike) -> Rate | None:
    """The share of units whose score has the sign of its effect, with Wilson's interval; units of score or effect zero
    are left out, None where no unit is left.

    Scores count as predictions of what a removal costs. A selector without negative scores says of every row that its
    removal hurts; it agrees wherever that is so.
    """
    signs = np.sign(finite(scores)) * np.sign(finite(effects))
    told = int((signs != 0).sum())
    if not told:
        return None
    right = int((signs > 0).sum())
    return Rate(right / told, wilson(right, told, CONFIDENCE), told)


def larger_high(sampled: int, units: int) -> float:
    """Upper 95% bound of the share of all units with a larger effect than the largest one of the sample.

    1 - .05^(1 / n): at a larger share, n draws would all have missed such units with a chance below .05. 0 where all
    units are in the sample.
    """
    if not 0 < sampled <= units:
        raise InputError(f"a sample has 1 to {units} of {units} units, got {sampled}")
    return 0.0 if sampled == units else 1 - (1 - CONFIDENCE) ** (1 / sampled)


class Recall(NamedTuple):
    """Of the sampled units whose abs(effect) is above `threshold`, `above` of them, how many a selector has `found`.

    interval: of the share found among all units above the threshold; missed_high: upper bound of the share missed.
    """

    threshold: float
    above: int
    found: int
    interval: Interval
    missed_high: float

    @property
    def value(self) -> float:
        return self.found / self.above


def recall_of_top(
    scores: npt.ArrayLike, sample: npt.NDArray[np.int64], effects: npt.ArrayLike, top: float
) -> Recall | None:
    """How many of the units with the largest effects have the largest scores, and how many can be missing at most.

    Found is a sampled unit above the threshold that is among the round(top * U) units of all U with the largest
    scores. With m = round(top * n), at least 1, of the n sampled units, the threshold is the (m + 1)-th largest
    abs(effect) of the sample. Given that number, the m units above it are a random sample of all units of the model
    above it (as order statistics are), about a share `top` of them: so Clopper and Pearson's interval of found / m
    holds for the share found among all these units, and `missed_high`, its one-sided bound of 95%, for what is missed.
    Were the target "exactly the top 1% of all units", the uncertainty of their border would have to come on top.
    Where every unit was measured, nothing is left to bound. None for fewer than two units, or a threshold shared by
    units on both sides of it.

    scores [U] of all units, sample [n] ascending, effects [n]
    """
    order = removal_order(np.asarray(scores), "morf")
    size, n = order.size, sample.size
    if n < 2:
        return None
    above = min(max(1, round(top * n)), n - 1)
    absolute = np.abs(finite(effects))
    largest = removal_order(absolute, "morf")
    threshold = float(absolute[largest[above]])
    if absolute[largest[above - 1]] == threshold:
        return None
    chosen = np.zeros(size, dtype=np.bool_)
    chosen[order[: max(1, round(top * size))]] = True
    found = int(chosen[sample[largest[:above]]].sum())
    if n == size:
        value = found / above
        return Recall(threshold, above, found, Interval(value, value), 1 - value)
    two_sided = clopper_pearson(found, above, CONFIDENCE)
    return Recall(threshold, above, found, two_sided, 1 - clopper_pearson(found, above, 2 * CONFIDENCE - 1).low)
