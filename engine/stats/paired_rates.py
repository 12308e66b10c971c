"""One set of prompts answered twice: which answers changed, McNemar's exact test, and the difference's interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from engine.records.errors import InputError
from engine.stats.intervals import Interval, wilson


@dataclass(frozen=True)
class PairedRates:
    """Counts of prompts by what they were before and after: yes_yes, yes_no (before only), no_yes, no_no."""

    yes_yes: int
    yes_no: int
    no_yes: int
    no_no: int

    @property
    def n(self) -> int:
        return self.yes_yes + self.yes_no + self.no_yes + self.no_no

    @property
    def difference(self) -> float:
        """Rate after minus rate before."""
        return (self.no_yes - self.yes_no) / self.n

    @property
    def mcnemar_p(self) -> float:
        """Two-sided exact p of McNemar's test: of the prompts that changed, as many each way by chance.
        With d = no_yes + yes_no changed prompts, X ~ binomial(d, 1/2): min(1, 2 P(X <= min(no_yes, yes_no))); 1 where
        none changed. McNemar 1947, in its exact conditional form."""
        return next(islice(_two_sided(self.no_yes + self.yes_no), min(self.no_yes, self.yes_no), None))

    def detectable(self, level: float) -> float | None:
        """The smallest absolute difference with mcnemar_p <= level, were as many prompts changed; None if there is none
        of so few."""
        changed = self.no_yes + self.yes_no
        told = sum(1 for _ in takewhile(lambda p: p <= level, _two_sided(changed)))
        return (changed - 2 * (told - 1)) / self.n if told else None

    @property
    def interval(self) -> Interval:
        """95% interval of `difference`: Newcombe 1998 (Statistics in Medicine 17, 2635), method 10.

        Square-and-add of the Wilson intervals of both rates, with a correlation phi between them:

            low  = D - sqrt((a - a_low)^2 - 2 phi (a - a_low)(b_high - b) + (b_high - b)^2)
            high = D + sqrt((a_high - a)^2 - 2 phi (a_high - a)(b - b_low) + (b - b_low)^2)

        a after, b before; phi = (C - n/2) / R for C > n/2, 0 for 0 <= C <= n/2, C / R below, with C = yes_yes no_no -
        yes_no no_yes and R the root of the product of the four margins; 0 where a margin is 0."""
        n, after, before = self.n, self.yes_yes + self.no_yes, self.yes_yes + self.yes_no
        a, b = after / n, before / n
        (a_low, a_high), (b_low, b_high) = wilson(after, n), wilson(before, n)
        phi = self._phi(after, before)

        def half(first: float, second: float) -> float:
            return math.sqrt(max(0.0, first * first - 2 * phi * first * second + second * second))

        low, high = self.difference - half(a - a_low, b_high - b), self.difference + half(a_high - a, b - b_low)
        return Interval(max(-1.0, low), min(1.0, high))

    def _phi(self, after: int, before: int) -> float:
        margins = after * (self.n - after) * before * (self.n - before)
        if not margins:
            return 0.0
        product = self.yes_yes * self.no_no - self.yes_no * self.no_yes
        corrected = max(product - self.n / 2, 0.0) if product > 0 else product
        return corrected / math.sqrt(margins)


def _two_sided(changed: int) -> Iterator[float]:
    """min(1, 2 P(X <= x)) of X ~ binomial(changed, 1/2), for x = 0, 1, ... up to half of them."""
    combinations = total = 1
    for x in range(changed // 2 + 1):
        yield min(1.0, 2 * total / 2**changed)
        combinations = combinations * (changed - x) // (x + 1)
        total += combinations


def paired_rates(before: Sequence[bool], after: Sequence[bool]) -> PairedRates:
    """before, after: verdicts on the same prompts in the same order. `InputError` for none, or for unequal numbers."""
    if not before or len(before) != len(after):
        raise InputError(f"paired rates need the same prompts twice, got {len(before)} and {len(after)} verdicts")
    pairs = list(zip(before, after, strict=True))
    return PairedRates(*(pairs.count(cell) for cell in ((True, True), (True, False), (False, True), (False, False))))
