"""How many rows can go before a loss exceeds a limit: where a growing edit is measured next, and what was bracketed."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.stats.uncertainty import student_t


class Harm(NamedTuple):
    """NLL under an edit minus the unedited model's, nats per token, with its error over blocks; None where unknown."""

    nats: float
    stderr: float | None
    blocks: int


class Budget(NamedTuple):
    """The bracket of the first crossing, in rows.

    rows: the most that were removed with all smaller removals within the limit. beyond: the fewest that exceed it, None
    where none did. low, high: 95% interval of the crossing; None without errors, high also where the harm's lower end
    stays within the limit."""

    rows: int
    beyond: int | None
    low: float | None
    high: float | None


def first_crossing(harms: Mapping[int, Harm], limit: float) -> Budget:
    """The first crossing of `limit` over rising numbers of rows, `harms` by number of rows; no rows do no harm.

    The interval is that of the test turned round: all removals whose harm is not told apart from the limit at .05, so
    its ends are where the upper and the lower end of the harm's 95% interval (Student's t over blocks) first cross the
    limit, straight lines between what was measured. It never is narrower than the bracket. It holds the evaluation
    text's spread, not the calibration's."""
    counts = sorted(harms)
    beyond = next((count for count in counts if not harms[count].nats <= limit), None)
    rows = max((count for count in counts if beyond is None or count < beyond), default=0)
    if any(harm.stderr is None for harm in harms.values()):
        return Budget(rows, beyond, None, None)
    low, high = (_crossing(harms, limit, side) for side in (1, -1))
    low = rows if low is None else min(low, rows)
    if high is not None and beyond is not None:
        high = max(high, beyond)
    return Budget(rows, beyond, low, high)


def next_count(harms: Mapping[int, Harm], limit: float, scan: Sequence[int], resolution: float) -> int | None:
    """How many rows to remove next, None once the crossing is known.

    First the rising numbers of `scan` until one exceeds the limit, then the geometric middle of the bracket, until its
    ends are neighbours or differ by at most `resolution` of the lower one; last, where the interval is open above, the
    next number of `scan`."""
    budget = first_crossing(harms, limit)
    if budget.beyond is not None and budget.beyond - budget.rows > max(1.0, resolution * budget.rows):
        middle = round(math.sqrt(max(budget.rows, 1) * budget.beyond))
        return min(max(middle, budget.rows + 1), budget.beyond - 1)
    if budget.beyond is not None and (budget.low is None or budget.high is not None):
        return None
    return next((count for count in scan if count > max(harms, default=0)), None)


def _crossing(harms: Mapping[int, Harm], limit: float, side: int) -> float | None:
    """Where harm + side * t * stderr first exceeds the limit, between measured points by a straight line."""
    count_below, end_below = 0, 0.0
    for count, harm in sorted(harms.items()):
        assert harm.stderr is not None
        end = harm.nats + side * (student_t(harm.blocks - 1) * harm.stderr if harm.stderr else 0.0)
        if not end <= limit:
            if not math.isfinite(end):
                return float(count_below) if side > 0 else float(count)
            return count_below + (count - count_below) * (limit - end_below) / (end - end_below)
        count_below, end_below = count, end
    return None
