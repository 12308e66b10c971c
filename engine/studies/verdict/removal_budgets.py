"""Budgets per selector, and what they say in words. Reads the table `budget`."""

from typing import NamedTuple

import polars as pl

from engine.stats.limits import BASELINE


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
    beside = f", {budgets[BASELINE]} of random rows" if BASELINE in budgets else ""
    return f"{budgets[best]} of the rows can go by {{{best}}} before {limit}{beside}"


def limit_words(table: pl.DataFrame) -> str:
    """`perplexity doubles`, or what the table's limit is."""
    factor = table["factor"][0] if table.height else 2.0
    return "perplexity doubles" if factor == 2.0 else f"perplexity is {factor:g} times as large"


def share_text(share: float) -> str:
    """Percent with two significant digits, three from 10% on, without zeros at the end."""
    return f"{100 * share:.3g}%" if share >= 0.1 else f"{100 * share:.2g}%"
