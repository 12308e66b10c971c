"""Estimates in words: an answer, a number with its interval, and what its error takes as independent. No torch."""

import math
from typing import Literal

import polars as pl

from engine.stats.holm import LEVEL
from engine.stats.table_estimates import has_blocks
from engine.stats.uncertainty import Estimate

Answer = Literal["better", "worse", "no difference seen", "saturated"]
ORDER_TITLES = {"lerf": "LeRF", "morf": "MoRF"}


def better_or_worse(difference: float, p_holm: float | None, order: str, level: float = LEVEL) -> Answer:
    """Is what has this NLL minus the reference's better: less harm under LeRF, more under MoRF? By its adjusted
    two-sided p; without a p no difference is seen."""
    if p_holm is None or not p_holm <= level or difference == 0:
        return "no difference seen"
    return "better" if (difference < 0) == (order == "lerf") else "worse"


def no_difference(low: float | None, high: float | None) -> str:
    """What stands before `between a and b` where a corrected test tells no difference; its interval, which is not
    corrected, may leave 0 out."""
    if low is None or high is None or not low * high > 0:
        return "no difference is seen"
    return "after correction for several tests no difference is told"


def interval_words(estimate: Estimate) -> str:
    """A number with its interval, as sentences say it."""
    if estimate.low is None or estimate.high is None or not math.isfinite(estimate.value):
        return f"{estimate.value:+.3g} (no error is known)"
    return f"{estimate.value:+.3g} ({estimate.low:+.3g} to {estimate.high:+.3g})"


def units_in_words(table: pl.DataFrame, numbers: bool = False) -> str:
    """What the errors of a table that knows blocks take as independent. numbers: with how many, as sentences on pages
    say it."""
    blocks, documents = (_common_value(table, name) if numbers else None for name in ("blocks", "documents"))
    count = "" if blocks is None else f"{blocks} "
    if "documents" not in table.columns or table["documents"].null_count() == table.height:
        return f"{count}blocks of neighbouring evaluation windows"
    if documents is None:
        return "blocks of neighbouring documents of the evaluation text"
    return f"{count}blocks of neighbouring documents ({documents} documents) of the evaluation text"


def paired_over(table: pl.DataFrame) -> str:
    """The same in a few words, as the ledger names a test."""
    if not has_blocks(table):
        return "windows"
    return "blocks of documents" if "documents" in table.columns else "blocks of windows"


def _common_value(table: pl.DataFrame, name: str) -> int | None:
    """The value of a column that has the same in every line."""
    values = table[name].unique() if name in table.columns else pl.Series()
    return int(values[0]) if len(values) == 1 and values[0] is not None else None
