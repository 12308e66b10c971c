"""What a sample of single units says of all of them, and of a selector's scores. Needs no torch.

An effect is NLL with the unit alone removed minus NLL of the unedited model: above zero the removal hurts, below it
helps. Units are sampled with equal chances (`stratified_sample`). Binomial intervals are then rather too wide: strata
and a sample that is a large part of all units only take variance away (Hoeffding 1956).
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError
from engine.stats.removal_order import average_ranks, rank_correlations, removal_order
from engine.stats.uncertainty import Interval, clopper_pearson, student_t, wilson

CONFIDENCE = 0.95
LEAST = 10  # units; below, no interval is given
_LARGEST = float(np.finfo(np.float64).max)
Numbers = npt.NDArray[np.float64]


def spearman_interval(
    first: npt.ArrayLike, second: npt.ArrayLike, confidence: float = 0.95
) -> tuple[float | None, Interval | None]:
    """Spearman's rho of n pairs, ties by average ranks, and its interval; None where it is not defined.

    With F, G the two distribution functions, rho = 12 E[F(X) G(Y)] - 3 has at (x, y) the influence

        12 (F(x) G(y) + E[1(X >= x) G(Y)] + E[1(Y >= y) F(X)]) + constant

    whose standard deviation over sqrt(n), all taken from the sample, is the standard error (Borkowf 2002, Computational
    Statistics & Data Analysis 39, 271). The interval is that of atanh(rho), mapped back. The usual error of Fisher's z
    holds for normal pairs only; scores often say how large an effect is and not its sign, and there it is too small.
    Seen in simulations from n = 30 on, for five shapes: coverage .94 to .98. No interval for n < 10 or abs(rho) = 1.

    first, second [n]; what is infinite or NaN counts as the largest number (NaN: a model that broke)."""
    x, y = finite(first), finite(second)
    ranks = [average_ranks(values).astype(np.float64) for values in (x, y)]
    rho = float(rank_correlations(np.stack(ranks).astype(np.float32))[0, 1]) if x.size > 1 else math.nan
    if math.isnan(rho):
        return None, None
    if x.size < LEAST or abs(rho) >= 1:
        return rho, None
    shares = [(rank + x.size / 2) / x.size for rank in ranks]
    influence = 12 * (shares[0] * shares[1] + _at_least(x, shares[1]) + _at_least(y, shares[0]))
    stderr = float(influence.std(ddof=1)) / math.sqrt(x.size)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * stderr / (1 - rho * rho)
    centre = math.atanh(rho)
    return rho, Interval(math.tanh(centre - half), math.tanh(centre + half))


def finite(values: npt.ArrayLike) -> Numbers:
    """float64 with NaN and infinity as the largest number, -infinity as the smallest: what a broken model costs."""
    return np.nan_to_num(np.asarray(values, dtype=np.float64), nan=_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)


def _at_least(keys: Numbers, values: Numbers) -> Numbers:
    """For every i the sum over j with keys_j >= keys_i of values_j, over n."""
    order = removal_order(keys, "lerf")
    in_order = keys[order]
    from_here = np.append(np.cumsum(values[order][::-1])[::-1], 0.0)
    tail_sums = np.empty_like(values)
    tail_sums[order] = from_here[np.searchsorted(in_order, in_order, side="left")] / len(keys)
    return tail_sums


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
    nonzero = int((signs != 0).sum())
    if not nonzero:
        return None
    right = int((signs > 0).sum())
    return Rate(right / nonzero, wilson(right, nonzero, CONFIDENCE), nonzero)


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
    hits = int(chosen[sample[largest[:above]]].sum())
    if n == size:
        value = hits / above
        return Recall(threshold, above, hits, Interval(value, value), 1 - value)
    two_sided = clopper_pearson(hits, above, CONFIDENCE)
    return Recall(threshold, above, hits, two_sided, 1 - clopper_pearson(hits, above, 2 * CONFIDENCE - 1).low)


RESAMPLES, LEAST_PAIRS = 2000, 30  # of a bootstrap; units below which it gives no interval


class Compared(NamedTuple):
    """Correlations of two scores with one truth, and the 95% interval of first - second; None where not defined."""

    first: float | None
    second: float | None
    low: float | None
    high: float | None


def correlation(scores: Numbers, truth: Numbers, measure: str) -> Numbers:
    """Pearson's r, or Spearman's rho with average ranks, along the last axis; NaN where one side is constant.

    scores [..., n], truth [..., n]; returns [...]
    """
    if measure == "spearman":
        scores, truth = (np.apply_along_axis(average_ranks, -1, one).astype(np.float64) for one in (scores, truth))
    a, b = (one - one.mean(axis=-1, keepdims=True) for one in (scores, truth))
    lengths = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    return np.asarray((a * b).sum(axis=-1) / np.where(lengths > 0, lengths, np.nan))


def compared(first: Numbers, second: Numbers, truth: Numbers, measure: str, seed: int = 0) -> Compared:
    """Both correlations with the truth of n units, and a paired bootstrap's interval of their difference.

    Units are drawn again with replacement, each with its truth and both of its scores; the interval is between two
    quantiles of `RESAMPLES` differences, those of 2.5% and 97.5% made a little wider by sqrt(n / (n - 1)) and Student's
    t (the expanded percentile interval, Hesterberg 2015, arXiv:1411.5279). **Choice:** of all units alike, although the
    sample is spread over Linears: strata take variance away, so that this is rather too wide. Simulated where both
    scores are as good, for n = 32, 64, 128 and 512, normal, log-normal and with correlated heavy tails: it covers .92
    to .96 (the bootstrap's standard deviation .87 to .97, the influence function's .78 to .96).
    No interval for n < 30.

    first, second, truth [n], finite
    """
    values = [float(one) for one in correlation(np.stack([first, second]), np.stack([truth, truth]), measure)]
    known = [None if math.isnan(one) else one for one in values]
    if None in known or truth.size < LEAST_PAIRS:
        return Compared(known[0], known[1], None, None)
    drawn = np.random.default_rng(seed).integers(0, truth.size, (RESAMPLES, truth.size))
    differences = correlation(first[drawn], truth[drawn], measure) - correlation(second[drawn], truth[drawn], measure)
    n = truth.size
    tail = NormalDist().cdf(-math.sqrt(n / (n - 1)) * student_t(n - 1, CONFIDENCE))
    low, high = np.nanquantile(differences, (tail, 1 - tail))
    return Compared(known[0], known[1], float(low), float(high))


def shuffled(values: Numbers, groups: npt.NDArray[np.int64], count: int, seed: int) -> Numbers:
    """`count` copies of the values, each permuted at random inside every group. values, groups [n]; [count, n]"""
    generator = np.random.default_rng(seed)
    result = np.empty((count, values.size), dtype=values.dtype)
    places = np.argsort(groups, kind="stable")
    for copy in result:
        copy[places] = values[np.lexsort((generator.random(values.size), groups))]
    return result
