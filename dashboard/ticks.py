"""Where to label an axis of log10."""

from __future__ import annotations

import math

_MANY_DECADES = 2.5


def decade_ticks(low: float, high: float) -> list[float]:
    """Heights in log10 to label: whole decades; where few are in sight 1-2-5 steps; within one, round values."""
    if high - low < 0.5:
        return _round_values(10**low, 10**high)
    decades = range(math.floor(low), math.ceil(high) + 1)
    if high - low <= _MANY_DECADES:
        ticks = [decade + math.log10(step) for decade in decades for step in (1, 2, 5)]
    else:
        least = (high - low) / 7
        step = next(nice for nice in (1, 2, 5, 10, 20, 25, 50, 100, 200, 10**9) if nice >= least)
        ticks = [float(decade) for decade in decades if decade % step == 0]
    return [tick for tick in ticks if low <= tick <= high]


def _round_values(low: float, high: float) -> list[float]:
    """log10 of about five round numbers from `low` to `high`."""
    magnitude = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= (high - low) / 5)
    first = math.ceil(low / step)
    return [math.log10(count * step) for count in range(first, math.floor(high / step) + 1)]
