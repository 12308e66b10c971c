"""Differences of two measurements of the same items, with standard errors in which what both share cancels; of
verdicts which ones changed, with McNemar's exact test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Protocol, TypeVar

from engine.records.errors import InputError
from engine.stats.intervals import Interval, wilson

if TYPE_CHECKING:
    from engine.stats.blocks import Blocks

Level = TypeVar("Level", bound=Hashable)


class Windowed(Protocol):
    """Summed nats and predicted tokens of every window. blocks: what errors take as units, by the windows' text; None:
    by their number alone."""

    @property
    def window_nats(self) -> tuple[float, ...]: ...

    @property
    def window_tokens(self) -> tuple[int, ...]: ...

    @property
    def blocks(self) -> Blocks | None: ...


def ratio_stderr(nats: Sequence[float], tokens: Sequence[int]) -> float | None:
    """Standard error of sum(nats) / sum(tokens) with windows as the independent units; None for a single window.
    With m the ratio and r_w = nats_w - m tokens_w: sqrt(sum_w r_w^2 * n / (n - 1)) / sum_w tokens_w. For windows of
    equal length it is the standard deviation of their means over sqrt(n)."""
    n = len(nats)
    if n < 2:
        return None
    mean = math.fsum(nats) / sum(tokens)
    residuals = (s - mean * t for s, t in zip(nats, tokens, strict=True))
    return math.sqrt(math.fsum(r * r for r in residuals) * n / (n - 1)) / sum(tokens)


def paired_difference(a: Windowed, b: Windowed) -> tuple[float, float | None]:
    """NLL of a minus NLL of b on the same windows, in nats per token, and its standard error (`ratio_stderr`).

    What makes a window hard for both cancels. For windows of equal length it is the standard error of a paired
    t-test. None for a single window.

    Errors: InputError where the two were not measured on windows of the same lengths."""
    if a.window_tokens != b.window_tokens:
        raise InputError(
            f"a paired difference needs the same windows, got {len(a.window_tokens)} windows of {sum(a.window_tokens)} "
            f"tokens and {len(b.window_tokens)} of {sum(b.window_tokens)}; evaluate both on one text"
        )
    nats = [x - y for x, y in zip(a.window_nats, b.window_nats, strict=True)]
    return math.fsum(nats) / sum(a.window_tokens), ratio_stderr(nats, a.window_tokens)


def mean_difference(after: Sequence[float], before: Sequence[float]) -> tuple[float, float | None]:
    """Mean of after minus before over the items, and its standard error from the paired differences (None for one)."""
    paired = [x - y for x, y in zip(after, before, strict=True)]
    mean = math.fsum(paired) / len(paired)
    return mean, statistics.stdev(paired) / math.sqrt(len(paired)) if len(paired) > 1 else None


def mean_over_seeds(values: Sequence[float], errors: Sequence[float | None]) -> tuple[float, float | None]:
    """Mean of one number per seed, and its standard error: sqrt(mean_s e_s^2 + s^2 / n), s^2 the variance over seeds.

    errors: of each number over the evaluation windows. All seeds share the windows, so these do not shrink with the
    number of seeds (taken as wholly dependent: rather too wide); what the draw of the seed adds does. None where an
    error is missing. One seed shows no spread, and its own error is all that is known."""
    mean, known = statistics.fmean(values), [error for error in errors if error is not None]
    if len(known) < len(values):
        return mean, None
    between = statistics.variance(values) / len(values) if len(values) > 1 else 0.0
    return mean, math.sqrt(statistics.fmean(error * error for error in known) + between)


def mean_over_levels(pairs: Iterable[tuple[Level, float]]) -> dict[Level, float]:
    """Mean value of every level, in the order in which levels come up."""
    values: dict[Level, list[float]] = {}
    for level, value in pairs:
        values.setdefault(level, []).append(value)
    return {level: statistics.fmean(some) for level, some in values.items()}


def defined(value: float | None) -> float | None:
    """None for a number that does not exist; tables hold nulls, never NaN."""
    return None if value is None or math.isnan(value) else value


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
