"""The one error of a mean over consecutive evaluation windows: blocks of windows as units, and what these miss.

Neighbouring windows are alike (paired differences correlated by .41 to .59 where it was measured), so that an error
that takes windows as independent is too small: on simulated windows that correlate by .5 its 95% interval covers about
.75. Where the text's documents are known, blocks begin where documents do (`engine.stats.documents`). Every analysis of
windows takes its errors from here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from engine.stats.paired import Windowed, ratio_stderr

NEIGHBOURS = 0.5  # correlation of neighbouring windows' differences that the errors are widened for


@dataclass(frozen=True)
class Blocks:
    """Contiguous windows put together.

    edges: the first window of every block, and behind them the number of windows. widening: factor on the variance that
    the blocks' spread gives, for what it misses. documents: how many documents the windows are of, where blocks begin
    where documents do; None where blocks are of windows, whatever they hold.
    """

    edges: tuple[int, ...]
    widening: float
    documents: int | None = None

    @property
    def number(self) -> int:
        return len(self.edges) - 1

    def sums(self, values: Sequence[float]) -> list[float]:
        """Sum of one value per window over every block, in order."""
        return [math.fsum(values[start:end]) for start, end in itertools.pairwise(self.edges)]


@cache
def window_blocks(windows: int) -> Blocks:
    """Blocks of nearly equal length: 1.5 times the cube root of how many windows there are, at least two of several (64
    windows: 6 blocks; 256: 10). The variance is widened by `missed` at their length; a single block says nothing.
    """
    number = min(windows, max(2, round(1.5 * windows ** (1 / 3))))
    edges = tuple(round(place * windows / number) for place in range(number + 1)) if number else (0,)
    return Blocks(edges, missed(windows // number, number) if number > 1 else 1.0)


def blocks_of(one: Windowed) -> Blocks:
    """The blocks of the windows behind a result: those that it knows from its text, else by their number."""
    return one.blocks or window_blocks(len(one.window_tokens))


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


def block_stderr(
    nats: Sequence[float], tokens: Sequence[int], blocks: Blocks | None = None
) -> tuple[float | None, int]:
    """Standard error of sum(nats) / sum(tokens) with blocks of neighbouring windows as units, and how many there are.

    The ratio estimator's (`ratio_stderr`) over the blocks' sums, its variance times their widening; its degrees of
    freedom are blocks - 1. blocks: `window_blocks` where not given; they and their length both grow with the text.
    **Choices:** the number of blocks, and the correlation of neighbours that it is widened for. With them 95%
    intervals, simulated where neighbours correlate by 0, .4, .5 and .6 (20,000 trials), cover .97, .96, .95 and .93 for
    16 windows, .96, .95, .95 and .945 for 64, and .95 throughout for 256; for 8 windows (3 blocks) .98, .96, .96 and
    .94. None for a single window.
    """
    used = blocks or window_blocks(len(tokens))
    sums, sizes = used.sums(nats), used.sums([float(one) for one in tokens])
    stderr = ratio_stderr(sums, [round(size) for size in sizes])
    return None if stderr is None else stderr * math.sqrt(used.widening), used.number


def block_error(one: Windowed) -> tuple[float | None, int]:
    """`block_stderr` of a result's own mean."""
    return block_stderr(one.window_nats, one.window_tokens, blocks_of(one))


def block_difference(a: Windowed, b: Windowed) -> tuple[float | None, int]:
    """`block_stderr` of NLL of a minus NLL of b, paired over the windows that both were measured on."""
    nats = [x - y for x, y in zip(a.window_nats, b.window_nats, strict=True)]
    return block_stderr(nats, a.window_tokens, blocks_of(a))
