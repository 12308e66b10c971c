"""The one error of a mean over consecutive evaluation windows: blocks of windows as units, and what these miss.

Neighbouring windows are alike (paired differences correlated by .41 to .59 where it was measured), so that an error
that takes windows as independent is too small: on simulated windows that correlate by .5 its 95% interval covers about
.75. Where the text's documents are known, blocks begin where documents do (`document_blocks`). Every analysis of
windows takes its errors from here."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, takewhile
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.records.errors import InputError
from engine.stats.uncertainty import (
    COLUMNS,
    Estimate,
    Interval,
    Part,
    draw_part,
    estimate,
    mean_over_levels,
    seed_parts,
    text_part,
    wilson,
)


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
        significant = sum(1 for _ in takewhile(lambda p: p <= level, _two_sided(changed)))
        return (changed - 2 * (significant - 1)) / self.n if significant else None

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


NEIGHBOURS = 0.5  # least correlation of neighbouring windows' differences that the errors are widened for
LEAST_WINDOWS = 16  # fewer do not show how they correlate


@dataclass(frozen=True)
class Blocks:
    """Contiguous windows put together.

    edges: the first window of every block, and behind them the number of windows. widening: factor on the variance that
    the blocks' spread gives, for what it misses. documents: how many documents the windows are of, where blocks begin
    where documents do; None where blocks are of windows, whatever they hold."""

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
def window_blocks(windows: int, correlation: float = NEIGHBOURS) -> Blocks:
    """Blocks of nearly equal length: 1.5 times the cube root of how many windows there are, at least two of several (64
    windows: 6 blocks; 256: 10), and no more than these windows are worth independent ones where neighbours correlate,
    n (1 - r) / (1 + r), but three. The variance is widened by `missed` at their length; a single block says nothing."""
    number = min(windows, max(2, round(1.5 * windows ** (1 / 3))))
    number = min(number, max(3, round(windows * (1 - correlation) / (1 + correlation))))
    edges = tuple(round(place * windows / number) for place in range(number + 1)) if number else (0,)
    return Blocks(edges, missed(windows // number, number, correlation) if number > 1 else 1.0)


def blocks_for(blocks: Blocks | None, tokens: Sequence[float], *nats: Sequence[float]) -> Blocks:
    """What errors of these losses per window take as units: blocks of documents where they are known, else blocks of
    windows for the neighbours that correlate most."""
    if blocks is not None and blocks.documents is not None:
        return blocks
    return window_blocks(len(tokens), max(neighbour_correlation(one, tokens) for one in nats))


def neighbour_correlation(nats: Sequence[float], tokens: Sequence[float]) -> float:
    """The correlation of neighbouring windows' deviations from the mean, between `NEIGHBOURS` and .95, in hundredths.
    Without the bias of short series: (n r + 1) / (n - 4), since r is too small by (1 + 4 rho) / n on average (Marriott
    and Pope 1954). Fewer than 16 windows say too little of it: `NEIGHBOURS`."""
    n = len(nats)
    mean = math.fsum(nats) / math.fsum(tokens)
    apart = [x - mean * t for x, t in zip(nats, tokens, strict=True)]
    squares = math.fsum(x * x for x in apart)
    if n < LEAST_WINDOWS or not 0 < squares < math.inf:
        return NEIGHBOURS
    seen = math.fsum(x * y for x, y in itertools.pairwise(apart)) / squares
    return min(max(NEIGHBOURS, round((n * seen + 1) / (n - 4), 2)), 0.95)


def missed(length: int, number: int, correlation: float = NEIGHBOURS) -> float:
    """By how much the variance of a mean is larger than `number` blocks of `length` windows say, neighbours correlated.
    For windows of which those h apart correlate by r^h: with c the mean correlation of two different blocks' sums, the
    variance of their mean is (1 + (n - 1) c) / n of a block's, and (1 - c) / n is what their spread says of it."""
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
    freedom are blocks - 1. blocks: of the windows' text, where its documents are known; else by how the windows
    correlate (`blocks_for`).
    **Choices:** the number of blocks, and the least correlation of neighbours that it is widened for. With them 95%
    intervals, simulated where neighbours correlate by 0, .4, .6 and .8 (3,000 trials and more), cover .97, .95, .94 and
    .90 for 16 windows, .96, .95, .955 and .94 for 64, and .95 throughout for 256. Documents that are long and not known
    are beyond it: with 16 windows of text in a document on average, and noise, it covers .74 for 64 windows, .87 for
    256.
    None for a single window."""
    used = blocks_for(blocks, tokens, nats)
    sums, sizes = used.sums(nats), used.sums([float(one) for one in tokens])
    stderr = ratio_stderr(sums, [round(size) for size in sizes])
    return None if stderr is None else stderr * math.sqrt(used.widening), used.number


def block_error(one: Windowed) -> tuple[float | None, int]:
    """`block_stderr` of a result's own mean."""
    return block_stderr(one.window_nats, one.window_tokens, one.blocks)


def block_difference(a: Windowed, b: Windowed) -> tuple[float | None, int]:
    """`block_stderr` of NLL of a minus NLL of b, paired over the windows that both were measured on."""
    nats = [x - y for x, y in zip(a.window_nats, b.window_nats, strict=True)]
    return block_stderr(nats, a.window_tokens, a.blocks)


LEAST_DOCUMENTS = 20  # fewer show too little of how documents differ
MOST_BLOCKS = 25


def document_blocks(documents: npt.NDArray[np.int64]) -> Blocks | None:
    """Blocks of neighbouring documents, None where there are too few of them.

    documents [windows, tokens]: number of the document that each token is of, ascending. Documents count as independent
    of each other, whatever there is within one.

    A window may hold the end of one document and the start of the next. Were windows that share a document one cluster,
    consecutive windows would all be one: each shares a document with the next. So a window belongs to the document that
    has most of its tokens (of several the first), and neighbouring documents are joined until a block has at least
    1/25 of the windows, so that few windows are shared between blocks. What is shared all the same is made good for:
    the variance is multiplied by

        widening = sum_d T_d^2 / (B / (B - 1) sum_b sum_d (t_bd - s_b T_d)^2), at least 1

    t_bd the tokens of document d in block b, T_d in all, s_b the block's share of all tokens: the true variance over
    the expected one of the ratio estimator, if every document had an effect of its own and nothing else varied (noise
    of each window is added to both, which brings the factor nearer to 1). It holds the blocks' unequal sizes as well.

    None below 20 documents with a window of their own, and where they would make fewer blocks than `window_blocks` (one
    document is most of the text). **Choices:** 20 and 25. Simulated with documents of .3 to 8 windows on average,
    log-normal with sigma .6 and 1.1, with and without noise of the windows, 95% intervals by Student's t with B - 1
    degrees cover .93 to .96 for 64 and 256 windows; blocks of windows cover .81 to .96 there, least where documents are
    long and unequal."""
    windows = len(documents)
    owners = np.array([np.bincount(one).argmax() for one in documents])
    starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
    if len(starts) < LEAST_DOCUMENTS:
        return None
    edges = _joined([*starts, windows], -(-windows // MOST_BLOCKS))
    if len(edges) - 1 < window_blocks(windows).number:
        return None
    return Blocks(tuple(edges), _widening(documents, edges), len(np.unique(documents)))


def _joined(edges: list[int], least: int) -> list[int]:
    """The edges that leave at least so many windows between each two of them; a rest goes to the last block."""
    starts = [0]
    for edge in edges[1:]:
        if edge - starts[-1] >= least:
            starts.append(edge)
    starts[-1] = edges[-1]
    return starts


def _widening(documents: npt.NDArray[np.int64], edges: list[int]) -> float:
    _, numbers = np.unique(documents, return_inverse=True)
    numbers = numbers.reshape(documents.shape)
    total = np.bincount(numbers.ravel()).astype(np.float64)
    inside = np.stack(
        [np.bincount(numbers[a:b].ravel(), minlength=total.size) for a, b in itertools.pairwise(edges)]
    )  # [blocks, documents]
    shares = inside.sum(1, keepdims=True) / documents.size
    number = len(inside)
    seen = np.square(inside - shares * total).sum() * number / (number - 1)
    return max(1.0, float(np.square(total).sum() / seen))


def mean_of_lines(lines: pl.DataFrame, value: str, seeds: Sequence[str] = (), draws: Sequence[Part] = ()) -> Estimate:
    """The mean of `value` over a table's lines. seeds: its columns of seeds, whose spread is a part of the error.
    The text's part is over blocks (`engine.stats.blocks`) or, in tables of earlier versions, over windows as if they
    were independent; draws: the calibration text's part, where it is known (`between_draws`)."""
    values = lines[value].to_list()
    errors, blocks = (
        [lines[name].to_list() for name in COLUMNS]
        if has_blocks(lines)
        else (lines["stderr"].to_list(), [None] * lines.height)
    )
    spread = seed_parts(values, *(lines[name].to_list() for name in seeds))
    return estimate(math.fsum(values) / len(values), [text_part(errors, blocks), *spread, *draws])


def log_gaps(gap: pl.DataFrame, draw_sweep: pl.DataFrame | None) -> dict[tuple[str, float], Estimate]:
    """The log gap by selector and rate, the mean over its seeds. gap: the table; draw_sweep: for the calibration text's
    part, where it was measured."""
    gaps = {}
    for key, lines in gap.group_by("selector", "rate", maintain_order=True):
        selector, rate = str(key[0]), float(key[1])
        draws = between_draws(draw_sweep, rate, (selector, "morf"), (selector, "lerf"))
        gaps[selector, rate] = mean_of_lines(lines, "log_gap", ["seed"], draws)
    return gaps


def each_line(lines: pl.DataFrame, value: str, draws: Sequence[Part] = ()) -> list[Estimate]:
    """`mean_of_lines` of every line by itself; lines whose value is not a number are left out."""
    return [mean_of_lines(one, value, draws=draws) for one in lines.filter(pl.col(value).is_not_nan()).iter_slices(1)]


def has_blocks(table: pl.DataFrame) -> bool:
    """Does the table know errors over blocks of windows? Earlier versions took windows as independent."""
    return set(COLUMNS) <= set(table.columns)


def all_saturated(lines: pl.DataFrame) -> bool:
    """Are both models destroyed in every line? Tables of earlier versions do not know."""
    return "saturated" in lines.columns and lines.height > 0 and bool(lines["saturated"].all())


def with_documents(table: pl.DataFrame, blocks: Blocks | None) -> pl.DataFrame:
    """The table with the column `documents` where its errors' blocks are made of documents, else as it is."""
    if blocks is None or blocks.documents is None:
        return table
    return table.with_columns(documents=pl.lit(blocks.documents, pl.Int64))


def between_draws(
    draw_sweep: pl.DataFrame | None, rate: float, first: tuple[str, str], second: tuple[str, str] | None = None
) -> list[Part]:
    """The calibration text's part in NLL of first (minus NLL of second): its variance between the disjoint draws.
    first, second: selector and order. Paired by draw; a side that was not drawn again (random, which sees no text)
    does not vary. Nothing where neither was measured."""
    if draw_sweep is None:
        return []
    at = draw_sweep.filter((pl.col("rate") - rate).abs() < 1e-9)
    sides: list[dict[int, float]] = [
        mean_over_levels(at.filter(selector=name, order=order).select("draw", "nll").rows())
        for name, order in (first, *([second] if second else []))
    ]
    known = [side for side in sides if side]
    if not known:
        return []
    if len(known) == 1:
        return draw_part(list(known[0].values()))
    shared = sorted(set(known[0]) & set(known[1]))
    return draw_part([known[0][draw] - known[1][draw] for draw in shared])
