"""The one error of a mean over consecutive evaluation windows: blocks of windows as units, and what these miss.

Neighbouring windows are alike (paired differences correlated by .41 to .59 where it was measured), so that an error
that takes windows as independent is too small: on simulated windows that correlate by .5 its 95% interval covers about
.75. Where the text's documents are known, blocks begin where documents do (`document_blocks`). Every analysis of
windows takes its errors from here."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from engine.stats.paired import Windowed, ratio_stderr

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
    owners = np.array([_most_common(one) for one in documents])
    starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
    if len(starts) < LEAST_DOCUMENTS:
        return None
    edges = _joined([*starts, windows], -(-windows // MOST_BLOCKS))
    if len(edges) - 1 < window_blocks(windows).number:
        return None
    return Blocks(tuple(edges), _widening(documents, edges), len(np.unique(documents)))


def _most_common(tokens: npt.NDArray[np.int64]) -> int:
    found, counts = np.unique(tokens, return_counts=True)
    return int(found[counts.argmax()])


def _joined(edges: list[int], least: int) -> list[int]:
    """The edges that leave at least so many windows between each two of them; a rest goes to the last block."""
    kept = [0]
    for edge in edges[1:]:
        if edge - kept[-1] >= least:
            kept.append(edge)
    kept[-1] = edges[-1]
    return kept


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
