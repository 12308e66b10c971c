"""Differences of two measurements of the same items, with standard errors in which what both share cancels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from engine.records.errors import InputError

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
