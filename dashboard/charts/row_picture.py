"""A model's rows as pixels: blocks side by side, in each its projections one below the other; large models in groups.

A pixel is one row, or, of a model with more rows than `MOST`, a group of neighbouring rows of one projection."""

from dataclasses import dataclass
from itertools import count as from_one

import numpy as np
import numpy.typing as npt
import polars as pl

MOST = 2**16  # pixels
GAP = 2  # empty lines between two projections, and empty columns between two blocks
ASPECT = 3.0  # about so many times as wide as high
_APART = 24  # a block with more parts than this (experts) has no line of its own for each


@dataclass(frozen=True)
class Part:
    """Contiguous rows of one projection of one block.
    left: column of the picture where the block begins. offset: place of the part's first pixel among the block's, which
    fill lines of `Picture.wide` pixels."""

    block: int
    projection: str
    start: int
    count: int
    left: int
    offset: int


@dataclass(frozen=True)
class Picture:
    """group: rows per pixel; the last pixel of a part may have fewer. Row r of a part is in pixel
    o = offset + (r - start) // group of its block, in column left + o % wide and line o // wide of the picture."""

    rows: int
    group: int
    wide: int
    width: int
    height: int
    parts: tuple[Part, ...]


def picture(rows: pl.DataFrame) -> Picture:
    """The picture of a row index: row_id, block, sublayer, projection, row, in the order of row_id."""
    changed = pl.any_horizontal(pl.col("block", "projection") != pl.col("block", "projection").shift()).fill_null(True)
    runs = (
        rows.group_by(changed.cum_sum().alias("run"), maintain_order=True)
        .agg(pl.col("block", "projection").first(), start=pl.col("row_id").first(), count=pl.len())
        .sort("start")
    )
    counts = runs["count"].to_numpy().astype(np.int64)
    group = rows_per_pixel(counts)
    pixels = -(-counts // group)
    blocks = list(dict.fromkeys(runs["block"].to_list()))
    inside = [np.flatnonzero((runs["block"] == block).to_numpy()) for block in blocks]
    apart = max(map(len, inside)) <= _APART
    wide, height = _proportions([pixels[some] for some in inside], apart)
    parts: list[Part] = []
    names, starts = runs["projection"].to_list(), runs["start"].to_list()
    for place, (block, some) in enumerate(zip(blocks, inside, strict=True)):
        offsets, _ = _offsets(pixels[some], wide, apart)
        parts += [
            Part(int(block), names[i], starts[i], int(counts[i]), place * (wide + GAP), int(offset))
            for i, offset in zip(some.tolist(), offsets.tolist(), strict=True)
        ]
    return Picture(rows.height, group, wide, len(blocks) * (wide + GAP) - GAP, height, tuple(parts))


def rows_per_pixel(counts: npt.NDArray[np.int64], most: int = MOST) -> int:
    """The smallest group with which the parts need at most `most` pixels, or one pixel each. counts [parts] of rows"""
    group = min(-(-int(counts.sum()) // most), int(counts.max()))
    while (pixels := -(-counts // group)).sum() > most and pixels.max() > 1:
        group += 1
    return group


def _offsets(pixels: npt.NDArray[np.int64], wide: int, apart: bool) -> tuple[npt.NDArray[np.int64], int]:
    """Where each part of a block begins among its pixels, and how many lines the block needs."""
    if not apart:
        ends = np.cumsum(pixels)
        return ends - pixels, -(-int(ends[-1]) // wide)
    lines = -(-pixels // wide) + GAP
    ends = np.cumsum(lines)
    return (ends - lines) * wide, int(ends[-1]) - GAP


def _proportions(blocks: list[npt.NDArray[np.int64]], apart: bool) -> tuple[int, int]:
    """Pixels per line of a block, and the picture's lines, such that the whole comes nearest to `ASPECT`."""
    shapes = []
    for wide in from_one(1):  # a wider block is never higher
        height = max(_offsets(pixels, wide, apart)[1] for pixels in blocks)
        ratio = (len(blocks) * (wide + GAP) - GAP) / height
        shapes.append((abs(float(np.log(ratio / ASPECT))), wide, height))
        if ratio >= ASPECT:
            break
    _, wide, height = min(shapes)
    return wide, height
