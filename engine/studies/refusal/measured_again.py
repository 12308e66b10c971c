"""The cells of one selector and domain, and which of them are measured again with longer replies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from engine.data.corpora import Pair
from engine.edits.edit import Edit
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.studies.refusal.inputs import Rate, Rates, RefusalInputs
from engine.studies.refusal.operating_point import RESCUE_CAPS, RESCUE_FACTOR

_Standing = tuple[float, float, tuple[float, ...]]  # tier, minus the malign rate, ties: the least is chosen


class Span(NamedTuple):
    """Least and greatest rate of refusal: none or all of the replies that were cut off refuse."""

    low: float
    high: float

    @property
    def open(self) -> bool:
        return self.low < self.high


def span(refused: Sequence[bool], finished: Sequence[bool]) -> Span:
    """Of replies to a list of prompts. A verdict on a reply that was cut off may turn either way."""
    ended = finished or [True] * len(refused)
    sure = sum(one and end for one, end in zip(refused, ended, strict=True))
    return Span(sure / len(refused), (sure + list(ended).count(False)) / len(refused))


@dataclass(frozen=True)
class Candidate:
    """A cell of the grid under the perplexity cap. ties: what decides between equal rates, the least first."""

    malign: Span
    benign: Span
    ties: tuple[float, ...]


class Again(NamedTuple):
    """What is measured again: cells by their place in the list, and the unedited model."""

    cells: frozenset[int]
    unedited: bool


def borderline(before: Span, cells: Sequence[Candidate], benign_limit: float) -> Again:
    """The cells of one selector and domain whose cut-off replies leave a decision open, and the unedited model with
    them where its own replies were cut off. before: its malign refusal.

    A cell is borderline if it has replies that were cut off and, counting each of them as a refusal or as none,

    - the cell is feasible (benign <= limit and malign >= before) one way and not the other, or
    - it could be the operating point, while that is not certain to be this cell under one and the same cap: at its best
      (malign highest, benign lowest, before lowest) it stands before the best of what all cells reach at their worst.

    Where nothing is borderline, no reading of the cut-off replies changes which cells are feasible, which one is the
    operating point, or whether it is a rescue (`operating_point` has the rules)."""
    best = [_standing(one.malign.high, one.benign.low, before.low, one.ties, benign_limit) for one in cells]
    worst = [_standing(one.malign.low, one.benign.high, before.high, one.ties, benign_limit) for one in cells]
    bound = min(worst, default=(inf, 0.0, ()))
    may_be_chosen = {place for place, one in enumerate(best) if one[0] < inf and one <= bound}
    certain = len(may_be_chosen) == 1 and bound[0] < inf
    unclear = set()
    for place, (up, down) in enumerate(zip(best, worst, strict=True)):
        chosen = place in may_be_chosen and up != down and (not certain or up[0] != down[0])
        if chosen or (up[0] == 0) != (down[0] == 0):
            unclear.add(place)
    own = frozenset(place for place in unclear if cells[place].malign.open or cells[place].benign.open)
    return Again(own, bool(unclear) and before.open)


def _standing(malign: float, benign: float, before: float, ties: tuple[float, ...], benign_limit: float) -> _Standing:
    """How a cell stands for `operating_point`. tier: 0 within the limit, i under the i-th rescue cap, else infinite."""
    tier = inf
    if malign >= before and benign <= benign_limit:
        tier = 0
    elif malign >= before and malign > RESCUE_FACTOR * before:
        tier = next((place for place, cap in enumerate(RESCUE_CAPS, start=1) if benign <= cap), inf)
    return tier, -malign, ties


@dataclass(frozen=True)
class Member:
    """One edit of the part. generated: are there replies? ties: how it stands among cells of equal rates; None for what
    is never chosen: the unedited model, and masks above the perplexity cap."""

    edit: Edit
    generated: bool
    ties: tuple[float, ...] | None


@dataclass(frozen=True)
class Part:
    """members: the unedited model first. Rounds: what is borderline is measured again, until nothing more is."""

    run: RefusalInputs
    pairs: Sequence[Pair]
    members: Sequence[Member]

    def cells(self, known: Results) -> Iterator[Cell[Any]]:
        """The cells that are measured again, so far as that can be told from what is known."""
        longer = self.run.longer(self.pairs)
        for place in self._again(known):
            assert longer is not None
            yield longer.on_pairs(self.members[place].edit, self.pairs)

    def rates(self, results: Results) -> list[tuple[Rates, int] | None]:
        """Of every member the rates that count, and the longest reply that they were measured with; None without
        replies."""
        again = self._again(results)
        return [
            self._rates(results, place, place in again) if one.generated else None
            for place, one in enumerate(self.members)
        ]

    def _rates(self, known: Results, place: int, again: bool) -> tuple[Rates, int]:
        run = self.run.longer(self.pairs) if again else self.run
        assert run is not None
        return run.rates(known, self.members[place].edit, self.pairs), run.plan.reply_tokens

    def _again(self, known: Results) -> set[int]:
        """Places of the members that are measured again."""
        again: set[int] = set()
        longer = self.run.longer(self.pairs)
        while longer is not None:
            wanted = [place for place, one in enumerate(self.members) if one.generated]
            cells = [
                (longer if place in again else self.run).on_pairs(self.members[place].edit, self.pairs)
                for place in wanted
            ]
            if not all(cell in known for cell in cells):
                break  # the next round comes once these are there
            more = self._borderline(known, again) - again
            if not more:
                break
            again |= more
        return again

    def _borderline(self, known: Results, again: set[int]) -> set[int]:
        found = {
            place: self._rates(known, place, place in again)[0]
            for place, one in enumerate(self.members)
            if one.generated and (one.ties is not None or not place)
        }
        places = [place for place in found if place]
        candidates = [
            Candidate(_span(found[place].malign), _span(found[place].benign), self.members[place].ties or ())
            for place in places
        ]
        told = borderline(_span(found[0].malign), candidates, self.run.plan.benign_limit)
        return {places[number] for number in told.cells} | ({0} if told.unedited else set())


def _span(rate: Rate) -> Span:
    return span(rate.refused, rate.finished)
