"""One result among random draws that were treated alike: its rank, its p, what a further draw would give; and whether
two texts can be told apart by draws of both."""

import math
import statistics
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError
from engine.stats.uncertainty import Interval, student_t


def rank_among(real: float, draws: Sequence[float]) -> int:
    """Place of the real value among itself and the draws, 1 = largest: 1 + #{draws >= real}. Ties count against it.
    A draw is "at least as large" exactly, so both have to be shares of one number of prompts."""
    if not draws or not all(math.isfinite(value) for value in (real, *draws)):
        raise InputError(f"a rank needs at least one draw and finite values, got {real} among {list(draws)}")
    return 1 + sum(draw >= real for draw in draws)


def p_value(real: float, draws: Sequence[float]) -> float:
    """p = rank / (draws + 1), one-sided: the chance of so good a rank if the real value is one draw more.

    The permutation test on a random sample of permutations, exact at every number of draws (Phipson & Smyth 2010,
    arXiv:1603.05766): where the real value and the draws are exchangeable, P(p <= a) <= a for every a. It cannot be
    below 1 / (draws + 1)."""
    return rank_among(real, draws) / (len(draws) + 1)


def prediction_interval(draws: Sequence[float], confidence: float = 0.95) -> Interval:
    """Where one further draw's share lies: mean +- t(n - 1) * s * sqrt(1 + 1/n), cut to [0, 1].
    Exact for normal values; shares of refused prompts are not normal, so its coverage was simulated
    (`precomputed.null_simulation`). `InputError` for fewer than two draws, which show no spread."""
    n = len(draws)
    if n < 2 or not all(0 <= value <= 1 for value in draws):
        raise InputError(f"a prediction interval needs at least two draws in [0, 1], got {list(draws)}")
    mean = statistics.fmean(draws)
    half = student_t(n - 1, confidence) * statistics.stdev(draws) * math.sqrt(1 + 1 / n)
    return Interval(max(0.0, mean - half), min(1.0, mean + half))


class Overlaps(NamedTuple):
    """Mean overlaps of `draws` disjoint draws of each of two texts, and whether the texts can be told apart.
    within_a, within_b: of two draws of one text; between: of one draw of each. drop = mean of both within - between.
    p: for all questions asked of the same draws together (`compare_draws`)."""

    within_a: float
    within_b: float
    between: float
    drop: float
    p: float


def compare_draws(overlaps: npt.NDArray[np.float64]) -> list[Overlaps]:
    """One answer per question (a selector at a rate) that was asked of the same draws.

    If it does not matter which text a draw is from, its label is exchangeable, so the observed drop is one among those
    of all ways to part the 2k draws into two halves of k: an exact permutation test, one-sided. Each question's drops
    are divided by their standard deviation over the partitions, and p is the share of partitions whose largest quotient
    over all questions is at least the question's own (Westfall and Young 1993, single step): whatever the questions
    have to do with each other, at most a share a of all such tables has any p <= a if no text matters. p is at least
    1 over the number of partitions, 35 for k = 4.

    overlaps [questions, 2k, 2k], symmetric, the first k draws of one text, the others of the second; the diagonal is
    not read. Errors: InputError for fewer than two draws of a text, and for overlaps that are not finite."""
    total = overlaps.shape[-1]
    k = total // 2
    if overlaps.ndim != 3 or k < 2 or total % 2 or not np.isfinite(overlaps[:, ~np.eye(total, dtype=bool)]).all():
        raise InputError(
            "texts are compared by at least 2 draws of each and finite overlaps [questions, 2k, 2k], got shape "
            f"{list(overlaps.shape)}"
        )
    # The first draw is always in the first half, so that no partition comes twice; the real one comes first.
    halves = [(0, *rest) for rest in combinations(range(1, total), k - 1)]
    parts = [_parts(overlaps, np.isin(np.arange(total), half)) for half in halves]
    drops = np.stack([(first + second) / 2 - across for first, second, across in parts])  # [partitions, questions]
    spread = drops.std(axis=0)
    scaled = np.divide(drops, spread, out=np.zeros_like(drops), where=spread > 1e-12)
    largest = scaled.max(axis=1)
    found = []
    for question, (first, second, across) in enumerate(zip(*parts[0], strict=True)):
        p = float((largest >= scaled[0, question] - 1e-9).mean()) if spread[question] > 1e-12 else 1.0
        found.append(Overlaps(float(first), float(second), float(across), float(drops[0, question]), p))
    return found


def _parts(overlaps: npt.NDArray[np.float64], first: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.float64], ...]:
    """Mean overlaps within the first half, within the second, between them; each [questions]."""
    others = ~np.eye(first.size, dtype=bool)
    within = (np.outer(one, one) & others for one in (first, ~first))
    return (*(overlaps[:, pairs].mean(axis=1) for pairs in within), overlaps[:, np.outer(first, ~first)].mean(axis=1))
