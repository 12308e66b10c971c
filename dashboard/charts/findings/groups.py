"""Values with errors in two groups: those below the widest gap, and those above it, if the errors leave a gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

LEVEL = 0.05  # of any false difference among all pairs (Bonferroni)


@dataclass(frozen=True)
class Value:
    """A selector's value with its standard error, None where it is not known."""

    name: str
    value: float
    error: float | None = None


@dataclass(frozen=True)
class Groups:
    """The two groups, each from its least value up. `high` is empty where the errors leave no difference."""

    low: list[Value]
    high: list[Value]


def known(values: Sequence[Value]) -> bool:
    """Has every value an error?"""
    return all(value.error is not None and math.isfinite(value.error) for value in values)


def limit(count: int) -> float:
    """Standard errors that a difference needs to be beyond them, with so many values compared in pairs: the two-sided
    normal quantile at `LEVEL` over the number of pairs.

    The errors of two values are taken as independent. Of masks on the same windows they are alike, so that less is
    called a difference than paired errors would; those are in the table `differences`."""
    pairs = max(1, math.comb(count, 2))
    return NormalDist().inv_cdf(1 - LEVEL / (2 * pairs))


def split(values: Sequence[Value]) -> Groups:
    """At the widest gap between neighbours that every pair across it is beyond its errors at; finite values only.
    Without errors, at the widest gap as it was measured; values that are all alike are one group."""
    ordered = sorted(values, key=lambda value: value.value)
    errors = known(ordered)
    far = limit(len(ordered))

    def apart(low: Value, high: Value) -> bool:
        need = far * math.hypot(low.error or 0.0, high.error or 0.0) if errors else 0.0
        return high.value - low.value > need

    best, widest = len(ordered), 0.0
    for place in range(1, len(ordered)):
        gap = ordered[place].value - ordered[place - 1].value
        if gap > widest and all(apart(low, high) for low in ordered[:place] for high in ordered[place:]):
            best, widest = place, gap
    return Groups(ordered[:best], ordered[best:])


def any_apart(values: Sequence[Value]) -> bool:
    """Is any pair beyond its errors? (Where there are none: are any two values not the same?)"""
    far = limit(len(values)) if known(values) else 0.0
    return any(
        abs(one.value - other.value) > far * math.hypot(one.error or 0.0, other.error or 0.0)
        for one, other in combinations(values, 2)
    )
