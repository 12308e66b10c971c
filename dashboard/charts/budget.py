"""How many rows can go before perplexity doubles: a line per selector, both orders."""

from __future__ import annotations

import html
import math

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, figure_size, formats, palette
from dashboard.charts.lines import finished
from engine.stats.limits import BASELINE
from engine.studies.estimate_words import RemovalBudget, headline, limit_words, removal_budgets

_ROW_PX, _AROUND_PX = 34, 170
_OPEN = {"lerf": "", "morf": "-open"}  # marks: lowest scores first are filled
WHAT = "filled, lowest scores first: further right is better; open, highest first: further left is better"
_FIRST = {"lerf": "lowest scores first", "morf": "highest scores first"}


def finding(table: pl.DataFrame) -> str:
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
                customdata=[_hover(budget, limit_words(table))],
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


def _hover(budget: RemovalBudget, limit: str) -> str:
    if budget.share == 0:
        return f"not one row: {limit} with the first"
    interval = ""
    if budget.low is not None:
        high = "open" if budget.high is None else f"{budget.high:.3%}"
        interval = f"<br>95% interval {budget.low:.3%} to {high}"
    return f"{'at least ' if budget.beyond_scan else ''}{budget.share:.3%} of the rows before {limit}{interval}"
