"""Estimates from lines of stored tables: which parts of an error they hold, old tables and new ones."""

import math
from collections.abc import Sequence

import polars as pl

from engine.stats.blocks import Blocks
from engine.stats.uncertainty import (
    COLUMNS,
    Estimate,
    Part,
    draw_part,
    estimate,
    mean_over_levels,
    seed_parts,
    text_part,
)


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
