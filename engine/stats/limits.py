"""What verdicts rest on: the limits, how a question is answered for several selectors at once, when a model is
destroyed (differences between such models mean nothing), how many rows can go before a loss exceeds a limit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.stats.uncertainty import Estimate, adjusted, student_t

BASELINE = "random"


@dataclass(frozen=True)
class Thresholds:
    """What the verdicts rest on. All can be changed; the tables are measured once.

    Damage is the NLL that LeRF adds to the unmasked model's, as a fraction of what random removal adds at the
    same rate: 0 is no harm, 1 as bad as chance. It compares across models and has no unit. Both count up to the NLL at
    which a model is destroyed (`engine.stats.limits`)."""

    rate: float = 0.3  # where LeRF is compared with random: the paper's reference rate
    faithful_damage: float = 0.5  # at most half of chance's damage; parts all attributions in the paper's tables
    invalid_damage: float = 0.8  # more than this is close to chance
    log_gap: float = 1.0  # nats per token: MoRF's perplexity at least e times LeRF's
    level: float = 0.05  # of two-sided p, adjusted by Holm over the selectors that a question is asked of
    spearman: float = 0.95  # of the scores from two disjoint draws of calibration text, mean over pairs
    jaccard: float = 0.8  # of the LeRF masks at `rate`, likewise; chance gives about 0.18 at 30%
    draws: int = 5  # least number of disjoint draws
    specific_orders: tuple[str, ...] = ("lerf", "morf")  # in which a selector has to beat its own depths


def clear(estimates: Mapping[str, Sequence[Estimate]], sign: int, level: float) -> dict[str, bool]:
    """Which selectors' numbers all lie on the side of `sign` (1: above 0), by two-sided p adjusted over the selectors.
    A selector's p is the largest of its numbers', so that all of them have to be clear. Holm (1979) over selectors.
    A number without an error is never clear, and its selector takes p = 1."""
    largest = {}
    for selector, several in estimates.items():
        ps = [one.p_differs if one.value * sign > 0 else 1.0 for one in several]
        largest[selector] = max((1.0 if p is None else p for p in ps), default=1.0)
    return {name: p <= level for name, p in adjusted(largest).items()}


VERDICT_RATES = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
SHARE = 0.5  # of the way from the unedited model's NLL to that of uniform predictions


def saturated_above(dense_nll: float, vocabulary: int) -> float:
    """The NLL above which a model is destroyed: dense + (ln V - dense) / 2, nats per token, V the vocabulary.
    Of a model whose own NLL exceeds ln V nothing can be told: the limit is its own NLL then."""
    return dense_nll + max(0.0, SHARE * (math.log(vocabulary) - dense_nll))


class Loss(Protocol):
    @property
    def nats_per_token(self) -> float: ...


def both_above(limit: float, a: Loss, b: Loss) -> bool:
    """Are both models destroyed, so that nothing can be claimed of their difference? A loss of NaN is."""
    return not (a.nats_per_token <= limit or b.nats_per_token <= limit)


class Judge(Protocol):
    def __call__(self, place: int, *, probe: bool) -> bool | None:
        """Is what stands at this place of a grid saturated? None while it is not known."""


def largest_unsaturated(places: int, saturated: Judge) -> int | None:
    """The last of `places` rising ones that is not saturated, -1 where all are; None while `saturated` does not know.

    The last place is asked first, then by bisection, with `probe`, which may answer for less work. What it finds is
    confirmed without: there, at lower places while they are saturated, or at higher ones while they are not. What is
    returned is not saturated and the next place is."""
    low, high = -1, places
    while high - low > 1:
        probe = places - 1 if high == places else (low + high) // 2
        answer = saturated(probe, probe=True)
        if answer is None:
            return None
        low, high = (low, probe) if answer else (probe, high)
    probe = max(low, 0)
    answer = saturated(probe, probe=False)
    if answer:
        while answer and probe >= 0:
            probe -= 1
            answer = saturated(probe, probe=False) if probe >= 0 else False
        return None if answer is None else probe
    while answer is not None and probe + 1 < places:
        answer = saturated(probe + 1, probe=False)
        if answer:
            break
        probe += answer is not None
    return None if answer is None else probe


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
