"""Rates of successes with their uncertainty."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

from engine.errors import InputError


class Interval(NamedTuple):
    low: float
    high: float


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a binomial rate, both ends in [0, 1] (E. B. Wilson 1927).

    (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), p = successes/n, z the normal quantile.
    `InputError` unless n > 0 and 0 <= successes <= n: without trials there is no rate, and none is invented.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise InputError(f"a rate needs 0 <= successes <= n and n > 0, got {successes} of {n}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be in (0, 1), got {confidence}; write 0.95")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p = successes / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and n successes the ends are 0 and 1 exactly; rounding would leave 1e-17 there.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return Interval(low, high)
