"""Saturated: a model that predicts little better than chance. Differences between such models mean nothing."""

import math
from typing import Protocol

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
        place = places - 1 if high == places else (low + high) // 2
        answer = saturated(place, probe=True)
        if answer is None:
            return None
        low, high = (low, place) if answer else (place, high)
    place = max(low, 0)
    answer = saturated(place, probe=False)
    if answer:
        while answer and place >= 0:
            place -= 1
            answer = saturated(place, probe=False) if place >= 0 else False
        return None if answer is None else place
    while answer is not None and place + 1 < places:
        answer = saturated(place + 1, probe=False)
        if answer:
            break
        place += answer is not None
    return None if answer is None else place
