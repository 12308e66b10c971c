"""Do several judges say the same of the same replies? `judge_pairs`: every pair, before and after each edit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from engine.judges.quality import cohens_kappa, kappa_interval
from engine.judges.refusals import Refused
from engine.results.tables import frame
from engine.stats.intervals import wilson

EVERY = "all"  # selector, domain, prompts and kind of the line over all replies


@dataclass
class JudgedReplies:
    """The verdicts of several judges on the same replies, gathered set by set. judges: their ids, in order."""

    model: str
    judges: Sequence[str]
    lines: list[tuple[object, ...]] = field(default_factory=list)
    _all: list[Refused] = field(default_factory=list)

    def add(self, key: tuple[object, ...], verdicts: Sequence[Refused]) -> None:
        """One set of replies. key: selector, domain, lambda, k, prompts, kind; verdicts: one entry per judge."""
        self.lines += _pairs((self.model, *key), self.judges, verdicts)
        self._all = [_joined(*both) for both in zip(self._all, verdicts, strict=True)] if self._all else [*verdicts]

    def table(self) -> Any:
        """`judge_pairs`: a line per set and pair of judges, then one per pair over all replies, each counted once."""
        whole = (self.model, EVERY, EVERY, None, None, EVERY, EVERY)
        return frame("judge_pairs", [*self.lines, *(_pairs(whole, self.judges, self._all) if self._all else ())])


def _pairs(key: tuple[object, ...], judges: Sequence[str], verdicts: Sequence[Refused]) -> Iterable[tuple[object, ...]]:
    for (name_a, a), (name_b, b) in combinations(zip(judges, verdicts, strict=True), 2):
        judged = [one and other for one, other in zip(a.each_judged, b.each_judged, strict=True)]
        both = [pair for pair, counts in zip(zip(a.refused, b.refused, strict=True), judged, strict=True) if counts]
        n, unjudged = len(both), judged.count(False)
        if not n:
            yield (*key, name_a, name_b, 0, unjudged, *[None] * 12, 0)
            continue
        first, second = ([pair[side] for pair in both] for side in (0, 1))
        same = sum(one == other for one, other in both)
        rates = [value for side in (first, second) for value in (sum(side) / n, *wilson(sum(side), n))]
        kappa = (cohens_kappa(first, second), *(kappa_interval(first, second) or (None, None)))
        yield (*key, name_a, name_b, n, unjudged, *rates, same / n, *wilson(same, n), *kappa, n - same)


def _joined(one: Refused, other: Refused) -> Refused:
    judged = one.each_judged + other.each_judged
    return Refused(one.refused + other.refused, one.finished + other.finished, judged, None)
