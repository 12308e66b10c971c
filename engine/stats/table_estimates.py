"""Estimates from lines of stored tables: which parts of an error they hold, old tables and new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from engine.stats.blocks import Blocks
from engine.stats.paired import mean_over_levels
from engine.stats.uncertainty import COLUMNS, Estimate, Part, draw_part, estimate, seed_parts, text_part


def mean_of_lines(lines: pl.DataFrame, value: str, seeds: Sequence[str] = (), draws: Sequence[Part] = ()) -> Estimate:
    """The mean of `value` over a table's lines. seeds: its columns of seeds, whose spread is a part of the error.

    The text's part is over blocks (`engine.stats.blocks`) or, in tables of earlier versions, over windows as if they
    were independent; draws: the calibration text's part, where it is known (`between_draws`).
    """
    values = lines[value].to_list()
    errors, blocks = (
        [lines[name].to_list() for name in COLUMNS]
        if has_blocks(lines)
        else (lines["stderr"].to_list(), [None] * lines.height)
    )
    spread = seed_parts(values, *(lines[name].to_list() for name in seeds))
    return estimate(math.fsum(values) / len(values), [text_part(errors, blocks), *spread, *draws])


def each_line(lines: pl.DataFrame, value: str, draws: Sequence[Part] = ()) -> list[Estimate]:
    """`mean_of_lines` of every line by itself; lines whose value is not a number are left out."""
    return [mean_of_lines(one, value, draws=draws) for one in lines.filter(pl.col(value).is_not_nan()).iter_slices(1)]


def has_blocks(table: pl.DataFrame) -> bool:
    """Does the table know errors over blocks of windows? Earlier versions took windows as independent."""
    return set(COLUMNS) <= set(table.columns)


def with_documents(table: pl.DataFrame, blocks: Blocks | None) -> pl.DataFrame:
    """The table with the column `documents` where its errors' blocks are made of documents, else as it is."""
    if blocks is None or blocks.documents is None:
        return table
    return table.with_columns(documents=pl.lit(blocks.documents, pl.Int64))


def units_in_words(table: pl.DataFrame, numbers: bool = False) -> str:
    """What the errors of a table that knows blocks take as independent. numbers: with how many, as sentences on pages
    say it."""
    blocks, documents = (_one(table, name) for name in ("blocks", "documents"))
    if "documents" not in table.columns or table["documents"].null_count() == table.height:
        count = f"{blocks} " if numbers and blocks is not None else ""
        return f"{count}blocks of neighbouring evaluation windows"
    if not numbers or documents is None:
        return "blocks of neighbouring documents of the evaluation text"
    made = f"{blocks} blocks of neighbouring documents" if blocks is not None else "blocks of neighbouring documents"
    return f"{made} ({documents} documents) of the evaluation text"


def paired_over(table: pl.DataFrame) -> str:
    """The same in a few words, as the ledger names a test."""
    if not has_blocks(table):
        return "windows"
    return "blocks of documents" if "documents" in table.columns else "blocks of windows"


def _one(table: pl.DataFrame, name: str) -> int | None:
    """The value of a column that has the same in every line."""
    values = table[name].unique() if name in table.columns else pl.Series()
    return int(values[0]) if len(values) == 1 and values[0] is not None else None


def between_draws(
    draw_sweep: pl.DataFrame | None, rate: float, first: tuple[str, str], second: tuple[str, str] | None = None
) -> list[Part]:
    """The calibration text's part in NLL of first (minus NLL of second): its variance between the disjoint draws.

    first, second: selector and order. Paired by draw; a side that was not drawn again (random, which sees no text)
    does not vary. Nothing where neither was measured.
    """
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


def interval_words(found: Estimate) -> str:
    """A number with its interval, as sentences say it."""
    if found.low is None or found.high is None or not math.isfinite(found.value):
        return f"{found.value:+.3g} (no error is known)"
    return f"{found.value:+.3g} ({found.low:+.3g} to {found.high:+.3g})"
