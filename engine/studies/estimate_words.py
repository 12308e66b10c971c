"""An estimate and what its error takes as independent, in words."""

from __future__ import annotations

import math

import polars as pl

from engine.stats.table_estimates import has_blocks
from engine.stats.uncertainty import Estimate


def interval_words(found: Estimate) -> str:
    """A number with its interval, as sentences say it."""
    if found.low is None or found.high is None or not math.isfinite(found.value):
        return f"{found.value:+.3g} (no error is known)"
    return f"{found.value:+.3g} ({found.low:+.3g} to {found.high:+.3g})"


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
