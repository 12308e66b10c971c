"""One result among random draws that were treated alike: its rank, its p, what a further draw would give; Holm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from engine.records.errors import InputError
from engine.stats.intervals import Interval, student_t


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
    below 1 / (draws + 1).
    """
    return rank_among(real, draws) / (len(draws) + 1)


def prediction_interval(draws: Sequence[float], confidence: float = 0.95) -> Interval:
    """Where one further draw's share lies: mean +- t(n - 1) * s * sqrt(1 + 1/n), cut to [0, 1].

    Exact for normal values; shares of refused prompts are not normal, so its coverage was simulated
    (`precomputed.null_simulation`). `InputError` for fewer than two draws, which show no spread.
    """
    n = len(draws)
    if n < 2 or not all(0 <= value <= 1 for value in draws):
        raise InputError(f"a prediction interval needs at least two draws in [0, 1], got {list(draws)}")
    mean = statistics.fmean(draws)
    half = student_t(n - 1, confidence) * statistics.stdev(draws) * math.sqrt(1 + 1 / n)
    return Interval(max(0.0, mean - half), min(1.0, mean + half))
