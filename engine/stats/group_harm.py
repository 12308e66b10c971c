"""Is the harm of a group of rows more than that of random groups of its size? No torch."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from engine.records.errors import InputError
from engine.stats.holm import holm
from engine.stats.intervals import two_sided_p

FLOOR = 0.01  # of the limit: less harm than this counts as this in logarithms


class Candidate(NamedTuple):
    """A group above the limit. harm: NLL with it removed alone minus the unmasked model's; draws: of random groups."""

    harm: float
    draws: tuple[float, ...]


def excess_p(harm: float, draws: Sequence[float], limit: float) -> float:
    """One-sided p that a further random group does as much harm: the larger of two prediction tests.

    t = (h - mean) / (s sqrt(1 + 1/n)) with n - 1 degrees, exact for normal values: once with the harm in nats, once
    with its logarithm, where what is below `FLOOR` of the limit counts as that. Harms of random groups are skewed to
    the right more often than not; normal, gamma, exponential and log-normal ones pass Holm over 100 groups at .05 in
    .05 of cases or fewer (simulated). That a single row carries most of the harm, which few random groups have, is not
    covered by either. Draws that do not differ, and losses that are not finite, have the exact p of the rank, which is
    at least 1 / (n + 1).
    Errors: InputError for fewer than two draws."""
    n = len(draws)
    if n < 2:
        raise InputError(f"a group is compared with at least 2 random groups of its size, got {n}")
    real, *others = (one if math.isfinite(one) else math.inf for one in (harm, *draws))  # NaN: the model is broken
    if math.inf in (real, *others) or min(others) == max(others):
        return (1 + sum(one >= real for one in others)) / (n + 1)
    found = _prediction_p(harm, draws)
    if limit <= 0:  # a limit below the unmasked model's loss: no logarithm of the harm
        return found
    least = FLOOR * limit
    logs = [math.log(max(one, least)) for one in draws]
    return max(found, _prediction_p(math.log(max(harm, least)), logs))


def _prediction_p(value: float, draws: Sequence[float]) -> float:
    """One-sided. Logarithms that are all at the floor say nothing against a value above them: 0."""
    spread = statistics.stdev(draws)
    above = value - statistics.fmean(draws)
    if not spread:
        return 0.0 if above > 0 else 1.0
    half = two_sided_p(above / (spread * math.sqrt(1 + 1 / len(draws))), len(draws) - 1) / 2
    return half if above > 0 else 1 - half


def judge_groups(candidates: Sequence[Candidate | None], limit: float) -> list[tuple[float | None, float | None]]:
    """p and Holm's p of every group; None for a group within the limit, which is not compared with random ones.
    Holm over all groups: those within the limit count as p = 1, since which groups are compared is seen in the same
    numbers."""
    found = [None if one is None else excess_p(one.harm, one.draws, limit) for one in candidates]
    adjusted = holm([1.0 if p is None else p for p in found])
    return [(None, None) if p is None else (p, whole) for p, whole in zip(found, adjusted, strict=True)]
