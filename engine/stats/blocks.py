"""Errors of a text whose windows follow each other: contiguous blocks of windows as units, and what these miss.

Neighbouring windows are alike (paired differences correlated by .41 to .59 where it was measured), so that an error
that takes windows as independent is too small: on simulated windows that correlate by .5 its 95% interval covers about
.75.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from engine.stats.paired import Windowed, ratio_stderr

NEIGHBOURS = 0.5  # correlation of neighbouring windows' differences that the errors are widened for


def block_sums(values: Sequence[float]) -> list[float]:
    """Sums over contiguous blocks of nearly equal length, in order: 1.5 times the cube root of how many values there
    are, at least two of several (64 windows: 6 blocks; 256: 10).
    """
    count = len(values)
    number = min(count, max(2, round(1.5 * count ** (1 / 3))))
    edges = [round(place * count / number) for place in range(number + 1)] if number else [0]
    return [math.fsum(values[start:end]) for start, end in itertools.pairwise(edges)]


def missed(length: int, number: int, correlation: float = NEIGHBOURS) -> float:
    """By how much the variance of a mean is larger than `number` blocks of `length` windows say, neighbours correlated.

    For windows of which those h apart correlate by r^h: with c the mean correlation of two different blocks' sums, the
    variance of their mean is (1 + (n - 1) c) / n of a block's, and (1 - c) / n is what their spread says of it.
    """
    inside = length + 2 * sum((length - step) * correlation**step for step in range(1, length))
    reach = ((1 - correlation**length) / (1 - correlation)) ** 2
    apart = sum((number - step) * correlation ** ((step - 1) * length + 1) for step in range(1, number)) * reach
    mean = 2 * apart / (number * (number - 1) * inside)
    return (1 + (number - 1) * mean) / (1 - mean)


def widening(windows: int) -> float:
    """The factor on a variance from the blocks of so many windows: `missed` at their length, 1 for a single block."""
    number = len(block_sums([1.0] * windows))
    return missed(windows // number, number) if number > 1 else 1.0


def block_stderr(nats: Sequence[float], tokens: Sequence[int]) -> tuple[float | None, int]:
    """Standard error of sum(nats) / sum(tokens) with blocks of neighbouring windows as units, and how many there are.

    The ratio estimator's (`ratio_stderr`) over the blocks' sums, its variance times `widening`; its degrees of freedom
    are blocks - 1. Blocks and their length both grow with the text. **Choices:** the number of blocks, and the
    correlation of neighbours that it is widened for. With them 95% intervals, simulated where neighbours correlate by
    0, .3, .5 and .59, cover .96, .95, .95 and .94 for 64 windows and .95 throughout for 256. None for a single window.
    """
    sums, sizes = block_sums(nats), block_sums([float(one) for one in tokens])
    stderr = ratio_stderr(sums, [round(size) for size in sizes])
    return None if stderr is None else stderr * math.sqrt(widening(len(tokens))), len(sums)


def block_difference(a: Windowed, b: Windowed) -> tuple[float | None, int]:
    """`block_stderr` of NLL of a minus NLL of b, paired over the windows that both were measured on."""
    return block_stderr([x - y for x, y in zip(a.window_nats, b.window_nats, strict=True)], a.window_tokens)
