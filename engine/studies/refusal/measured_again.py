"""The cells of one selector and domain, and which of them are measured again with longer replies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.data.corpora import Pair
from engine.edits.edit import Edit
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.studies.refusal.borderline import Candidate, Span, borderline, span
from engine.studies.refusal.inputs import Rate, Rates, RefusalInputs


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
