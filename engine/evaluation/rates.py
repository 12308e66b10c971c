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
    return wilson_of_rate(successes / n, n, confidence)


def wilson_of_rate(p: float, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's interval of a rate p on n trials; p * n need not be whole (a mean of several rates)."""
    if n <= 0 or not 0 <= p <= 1:
        raise InputError(f"a rate needs 0 <= p <= 1 and n > 0, got {p} on {n}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be in (0, 1), got {confidence}; write 0.95")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and n successes the ends are 0 and 1 exactly; rounding would leave 1e-17 there.
    low = 0.0 if p == 0 else (centre - half) / scale
    high = 1.0 if p == 1 else (centre + half) / scale
    return Interval(low, high)


def student_t(degrees: int, confidence: float = 0.95) -> float:
    """The two-sided quantile t of Student's distribution: P(|T| <= t) = confidence, by bisection.

    With T = sqrt(degrees) * tan(u), P(|T| <= t) = 2 c * integral of cos(u)^(degrees - 1) from 0 to
    atan(t / sqrt(degrees)), c = Gamma((degrees + 1) / 2) / (sqrt(pi) Gamma(degrees / 2)); Simpson's rule.
    """
    if degrees < 1 or not 0 < confidence < 1:
        raise InputError(
            f"Student's t needs degrees >= 1 and confidence in (0, 1), got {degrees}, {confidence}"
        )
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)

    def within(angle: float) -> float:
        steps = 512
        values = (
            (1 if i in (0, steps) else 4 if i % 2 else 2) * math.cos(angle * i / steps) ** (degrees - 1)
            for i in range(steps + 1)
        )
        return 2 * scale * math.fsum(values) * angle / steps / 3

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)
