"""Blocks of evaluation windows that begin where documents do."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from engine.stats.blocks import Blocks, window_blocks

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
    long and unequal.
    """
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
