"""Rankings: scores to a removal order (which row goes first, which last, with ties settled), and how alike two
rankings or two masks are: Spearman, Jaccard, the Jaccard that chance alone gives, means over draws."""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError, unknown
from engine.stats.uncertainty import CONFIDENCE, student_t

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


def rank(scores: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Rank of each entry, 0 = lowest, equal entries in the order of their row id. [N]"""
    order = removal_order(scores, "lerf")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


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


_CHUNK_ROWS = 2**18  # columns of a matrix that are widened to float64 at a time


def average_ranks(scores: npt.ArrayLike, order: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.float32]:
    """Rank of every score, 0 = lowest, equal scores sharing their mean rank, minus the mean of all ranks.
    Multiples of one half, exact in float32 up to 2^24 rows.
    scores [N]; order: `removal_order(scores, "lerf")` where it is known; returns [N] float32 of sum 0"""
    values = np.asarray(scores)
    ascending = removal_order(values, "lerf") if order is None else order
    in_order = values[ascending]
    starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
    counts = np.diff(np.append(starts, values.size))
    shared = starts + (counts - 1) / 2 - (values.size - 1) / 2
    ranks = np.empty(values.size, dtype=np.float32)
    ranks[ascending] = np.repeat(shared.astype(np.float32), counts)
    return ranks


def rank_correlations(ranks: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Spearman's rho of every pair of rankings; NaN where one has a single value throughout.
    ranks [S, N] from `average_ranks`; returns [S, S]"""
    products = gram(ranks)
    lengths = np.sqrt(np.diag(products))
    lengths[lengths == 0] = np.nan
    return products / np.outer(lengths, lengths)


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Spearman's rho of two score vectors [N], ties by average ranks; NaN if one is constant."""
    return float(rank_correlations(np.stack([average_ranks(first), average_ranks(second)]))[0, 1])


def gram(matrix: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """matrix @ matrix.T in float64, without a float64 copy of the whole. [S, N] -> [S, S]"""
    total = np.zeros((len(matrix), len(matrix)))
    for start in range(0, matrix.shape[1], _CHUNK_ROWS):
        chunk = matrix[:, start : start + _CHUNK_ROWS].astype(np.float64)
        total += chunk @ chunk.T
    return total


def jaccard(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> float:
    """|A and B| / |A or B| of two masks (distinct row ids); NaN if both are empty. first [a], second [b]"""
    common = np.intersect1d(first, second, assume_unique=True).size
    union = first.size + second.size - common
    return common / union if union else math.nan


def jaccards(members: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Jaccard of every pair of sets; NaN if both are empty. members [S, n], returns [S, S]"""
    common = gram(members)
    sizes = np.diag(common)
    union = sizes[:, None] + sizes[None, :] - common
    return np.divide(common, union, out=np.full_like(common, math.nan), where=union > 0)


def expected_random_jaccard(rows: int, first: int, second: int) -> float:
    """Mean Jaccard of two independent uniformly random sets of `first` and `second` of `rows` rows; NaN if both are 0.

    E[X / (first + second - X)], X ~ hypergeometric(rows, first, second): the sum over all overlaps that can
    happen, less those more than 12 standard deviations and 40 rows from the mean (together below 1e-20). By the
    ratios of neighbouring probabilities, which is exact to 1e-15; `scipy.stats.hypergeom` is off by 2e-10 at 3.5
    million rows and takes 50 times as long."""
    if first + second == 0:
        return math.nan
    mean = first * second / rows
    spread = mean * (rows - first) / rows * (rows - second) / max(rows - 1, 1)  # variance of X
    width = 12 * math.sqrt(spread) + 40
    low = max(0, first + second - rows, math.floor(mean - width))
    high = min(first, second, math.ceil(mean + width))
    overlap = np.arange(low, high + 1, dtype=np.float64)
    step = overlap[:-1]
    # P(x + 1) / P(x) of the hypergeometric distribution
    ratio = (first - step) * (second - step) / ((step + 1) * (rows - first - second + step + 1))
    log_weight = np.concatenate([[0.0], np.cumsum(np.log(ratio))])
    weight = np.exp(log_weight - log_weight.max())
    return float((weight * overlap / (first + second - overlap)).sum() / weight.sum())


def over_draws(pairs: Sequence[float], draws: int) -> tuple[float, float] | tuple[None, None]:
    """Ends of the 95% interval of the mean of `pairs` [draws (draws - 1) / 2], in the order of `numpy.triu_indices`.

    Pairs share draws and are not independent: the error is the jackknife's over draws, v = (n - 1) / n sum of
    (m_i - mean of m_i)^2, m_i the mean of the pairs without draw i (Efron and Stein 1981: not too small on average),
    with Student's t of n - 1 degrees. Simulated for 3, 5 and 8 draws it covers the true mean in .94 to .98 of cases;
    where some draws are much noisier than others (log-normal, sigma .5) in .83 to .96. (None, None) for fewer than 3
    draws, or where a pair has no number."""
    values = np.asarray(pairs, dtype=np.float64)
    if draws < 3 or not np.isfinite(values).all():
        return None, None
    first, second = np.triu_indices(draws, 1)
    without = np.array([values[(first != draw) & (second != draw)].mean() for draw in range(draws)])
    stderr = math.sqrt((draws - 1) / draws * float(np.square(without - without.mean()).sum()))
    half = student_t(draws - 1, CONFIDENCE) * stderr
    return float(values.mean()) - half, float(values.mean()) + half
