"""Figures of the overview: perplexity at one rate over models, and how many rows can go before perplexity doubles."""

import html
import math
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, figure_size, formats, matrix, palette, series
from dashboard.charts.lines import finished
from engine.records.errors import InputError
from engine.stats.limits import BASELINE, Thresholds
from engine.studies.verdict.removal_budgets import RemovalBudget, headline, limit_words, removal_budgets

RATE = Thresholds().rate
_ROW_PX, _AROUND_PX = 34, 170
_OPEN = {"lerf": "", "morf": "-open"}  # marks: lowest scores first are filled
BUDGETS = "filled, lowest scores first: further right is better; open, highest first: further left is better"
_FIRST = {"lerf": "lowest scores first", "morf": "highest scores first"}


def over_models(sweeps: Mapping[str, tuple[pl.DataFrame, str]]) -> pl.DataFrame:
    """LeRF at `RATE` over models. sweeps: label -> (curves, model).
    Columns: label, selector, nll, error (`series.whole_error`), printed, destroyed, unmasked_nll; models that were not
    measured at `RATE` are left out."""
    parts = []
    for label, (curves, model) in sweeps.items():
        points = series.points(curves, model, curves["selector"].unique().to_list(), ["lerf"], (RATE, RATE))
        parts.append(
            palette.sorted_by_selector(points).select(
                pl.lit(label).alias("label"), "selector", "nll", series.whole_error().alias("error"), "printed",
                "destroyed", pl.lit(series.unmasked_nll(curves, model), pl.Float64).alias("unmasked_nll"),
            )
        )  # fmt: skip
    if not any(part.height for part in parts):
        raise InputError(f"no model here was measured under LeRF at {RATE:.0%}; run `selector-audit sweep`")
    return pl.concat(parts)


def snapshot(table: pl.DataFrame, below: str) -> go.Figure:
    """LeRF perplexity at one rate, a line per model and a column per selector (`over_models`), the unmasked model last.
    Colours are places within a line: heights of different models do not compare."""
    labels = table["label"].unique(maintain_order=True).to_list()
    selectors = palette.in_order(table["selector"].to_list())
    rows = {(row["label"], row["selector"]): row for row in table.iter_rows(named=True)}
    unmasked = dict(table.select("label", "unmasked_nll").iter_rows())
    cells = [[rows.get((label, name)) for name in selectors] for label in labels]
    values = [[row["nll"] if row else None for row in line] + [unmasked[label]]
              for label, line in zip(labels, cells, strict=True)]  # fmt: skip
    return matrix.matrix(
        values, [*map(palette.title, selectors), "Unmasked"], [html.escape(label) for label in labels],
        heading=f"{formats.rate(RATE)} removed, lowest scores first (LeRF)", below=html.escape(below),
        text=formats.perplexity, span=(0.0, 1.0),
        hover=[[_hover(row) if row else "" for row in line] + ["the unmasked model"] for line in cells],
        colour=[matrix.places(line) for line in values],
    )  # fmt: skip


def _hover(row: dict[str, Any]) -> str:
    printed = f" (printed {row['printed']})" if row["printed"] else ""
    return (
        f"<b>{palette.title(row['selector'])}</b>, {html.escape(row['label'])}<br>perplexity "
        f"{formats.perplexity(row['nll'])}{printed}<br>NLL {row['nll']:.4f} nats per token"
    )


def budget_finding(table: pl.DataFrame) -> str:
    """The best selector's budget beside that of random rows."""
    names = {name: palette.title(name) for name in table["selector"].unique()}
    return headline(table).format(**names)


def budgets(table: pl.DataFrame) -> go.Figure:
    """One line per selector, the largest LeRF budget first; rows in a logarithmic scale of their share.
    table: `budget` of one model. Bars: the interval over blocks of text, of several seeds from the least to the
    greatest end. Triangles to the right: at least so much was within the limit; to the left: not one row."""
    by_order = {order: removal_budgets(table, order) for order in _FIRST}
    names = list(by_order["lerf"])
    low = min((one.share for found in by_order.values() for one in found.values() if one.share > 0), default=0.001)
    edge = low / 1.6
    figure = go.Figure()
    for order, found in by_order.items():
        for place, name in enumerate(names):
            if name not in found:
                continue
            budget, look = found[name], palette.style(name)
            symbol = "triangle-right" if budget.beyond_scan else "triangle-left" if budget.share == 0 else look.symbol
            mark = {"color": look.colour, "symbol": symbol + _OPEN[order], "size": 13}
            figure.add_scatter(
                x=[budget.share or edge], y=[place], name=f"{look.title}, {_FIRST[order]}", mode="markers",
                showlegend=False, cliponaxis=False, marker=mark,
                error_x=axes.intervals([(budget.share or None, budget.low, budget.high)], colour=look.colour),
                customdata=[_budget_hover(budget, limit_words(table))],
                hovertemplate=f"<b>{html.escape(look.title)}</b>, {_FIRST[order]}<br>%{{customdata}}<extra></extra>",
            )  # fmt: skip
    for order, symbol in (("lerf", "circle"), ("morf", "circle-open")):
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=_FIRST[order],
            marker={"color": palette.REFERENCE, "symbol": symbol, "size": 11},
        )  # fmt: skip
    random = by_order["lerf"].get(BASELINE)
    if random is not None and random.share > 0:
        figure.add_vline(random.share, line=palette.DOTTED)
        # On a logarithmic axis plotly takes a note's place as a logarithm, a line's as it is.
        figure.add_annotation(
            text="random rows", x=math.log10(random.share), yref="paper", y=1, yanchor="bottom", showarrow=False,
            font={"size": figure_size.NOTE_PX, "color": palette.REFERENCE},
        )  # fmt: skip
    figure.update_yaxes(**axes.places([palette.title(name) for name in names]), automargin=True)
    ticks = [value for value in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0) if value >= low / 3]
    figure.update_xaxes(
        axes.titled(f"rows removed when {limit_words(table)}", type="log", tickangle=0, tickvals=ticks,
                    ticktext=[formats.rate(value) for value in ticks], range=[math.log10(edge / 1.3), 0.04])
    )  # fmt: skip
    return finished(figure, f"Rows that can go before {limit_words(table)}", "", _AROUND_PX + _ROW_PX * len(names), 92)


def _budget_hover(budget: RemovalBudget, limit: str) -> str:
    if budget.share == 0:
        return f"not one row: {limit} with the first"
    interval = ""
    if budget.low is not None:
        high = "open" if budget.high is None else f"{budget.high:.3%}"
        interval = f"<br>95% interval {budget.low:.3%} to {high}"
    return f"{'at least ' if budget.beyond_scan else ''}{budget.share:.3%} of the rows before {limit}{interval}"
