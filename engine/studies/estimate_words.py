"""Estimates in words: an answer, a number with its interval, and what its error takes as independent. No torch."""

import math
from typing import Literal, NamedTuple

import polars as pl

from engine.stats.limits import BASELINE
from engine.stats.table_estimates import has_blocks
from engine.stats.uncertainty import LEVEL, Estimate

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


class RemovalBudget(NamedTuple):
    """Of one selector and order, means over seeds. beyond_scan: no measured share exceeded the limit, so it is at least
    so much. low, high: the interval, of several seeds from the least to the greatest end; None where not known."""

    share: float
    low: float | None
    high: float | None
    beyond_scan: bool

    def __str__(self) -> str:
        return f"{'at least ' if self.beyond_scan else ''}{share_text(self.share)}"


def removal_budgets(table: pl.DataFrame, order: str) -> dict[str, RemovalBudget]:
    """By selector, the largest first under LeRF, the smallest first under MoRF: the better selector comes first."""
    budgets = {}
    for (name,), lines in table.filter(order=order).group_by("selector", maintain_order=True):
        share = float(lines["budget"].mean())  # type: ignore[arg-type]
        ends = [
            None if lines[column].null_count() else float(end)  # type: ignore[arg-type]
            for column, end in (("budget_low", lines["budget_low"].min()), ("budget_high", lines["budget_high"].max()))
        ]
        budgets[str(name)] = RemovalBudget(share, ends[0], ends[1], lines["beyond"].null_count() > 0)
    return dict(sorted(budgets.items(), key=lambda item: item[1].share, reverse=order == "lerf"))


def headline(table: pl.DataFrame) -> str:
    """Which selector's lowest rows can go furthest, beside random rows."""
    budgets, limit = removal_budgets(table, "lerf"), limit_words(table)
    best = next((name for name in budgets if name != BASELINE), None)
    if best is None:
        return "No budget was measured"
    beside = f", of random rows {budgets[BASELINE]}" if BASELINE in budgets else ""
    return f"{budgets[best]} of the rows, chosen by {{{best}}}, can go before {limit}{beside}"


def limit_words(table: pl.DataFrame) -> str:
    """`perplexity doubles`, or what the table's limit is."""
    factor = table["factor"][0] if table.height else 2.0
    return "perplexity doubles" if factor == 2.0 else f"perplexity is {factor:g} times as large"


def share_text(share: float) -> str:
    """Percent with two significant digits, three from 10% on, without zeros at the end."""
    return f"{100 * share:.3g}%" if share >= 0.1 else f"{100 * share:.2g}%"
