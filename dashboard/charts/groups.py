"""Bars of one number per selector, and what calibration on other text costs."""

import html
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, formats, palette
from dashboard.charts.formats import LN10
from dashboard.charts.lines import finished, perplexity_scale

Row = dict[str, Any]
_PATTERNS = ("", "/", "x", ".")


def selector_bars(
    frame: pl.DataFrame, columns: Sequence[tuple[str, str]], *, heading: str, below: str = "", title: str,
    text: Callable[[float], str], hover: Callable[[Row], str], tickformat: str = "", top: float | None = None,
) -> go.Figure:  # fmt: skip
    """Horizontal bars, one group per selector. columns: (column, name); several are told apart by their pattern."""
    selectors = palette.in_order(frame["selector"].to_list())[::-1]  # plotly draws from below
    rows = {row["selector"]: row for row in frame.iter_rows(named=True)}
    figure = go.Figure()
    for (column, name), pattern in zip(list(columns)[::-1], _PATTERNS[: len(columns)][::-1], strict=True):
        values = [rows[selector][column] for selector in selectors]
        figure.add_bar(
            x=values, y=[palette.title(selector) for selector in selectors], name=name, orientation="h",
            text=["–" if value is None else text(value) for value in values], textposition="outside",
            cliponaxis=False, customdata=[hover(rows[selector]) for selector in selectors],
            hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>", showlegend=len(columns) > 1,
            marker={
                "color": [palette.style(selector).colour for selector in selectors],
                "pattern": {"shape": pattern, "solidity": 0.35},
            },
        )  # fmt: skip
    present = [value for column, _ in columns for value in frame[column].drop_nulls()]
    span = [min(0.0, *present, 0.0), (top if top is not None else max([*present, 1e-9])) * 1.2]
    figure.update_xaxes(title={"text": title, "standoff": 5}, tickformat=tickformat, range=span)
    figure.update_layout(legend={"traceorder": "reversed"})
    bottom = 110 if len(columns) > 1 else 60
    return finished(figure, heading, below, 130 + bottom + 24 * len(selectors) * len(columns), bottom)


def two_corpora(frame: pl.DataFrame, names: tuple[str, str]) -> go.Figure:
    """LeRF perplexity of each selector calibrated on one text and on the other: columns selector, nll_a, nll_b."""
    rows = list(palette.sorted_by_selector(frame).iter_rows(named=True))
    looks = [palette.style(row["selector"]) for row in rows]
    heights = [
        [None if (nll := axes.finite(row[name])) is None else nll / LN10 for row in rows] for name in ("nll_a", "nll_b")
    ]
    figure = go.Figure()
    for place, (look, ends) in enumerate(zip(looks, zip(*heights, strict=True), strict=True)):
        axes.joined(figure, [end for end in ends if end is not None], place, color=look.colour)
    series = zip(("nll_a", "nll_b"), names, ("circle", "diamond-open"), heights, strict=True)
    for column, name, symbol, values in series:
        marks = []
        for place, (look, row) in enumerate(zip(looks, rows, strict=True)):
            told = f"<b>{look.title}</b>, calibrated on {html.escape(name)}"
            told += f"<br>perplexity {formats.perplexity(row[column])}"
            marks.append(dots.Dot(place, values[place], told))
        dots.add(figure, f"calibrated on {name}", marks, [look.colour for look in looks], symbol)
    scale = perplexity_scale([end for ends in heights for end in ends if end is not None])
    titles = [look.title for look in looks]
    below = "both on the same evaluation text"
    return dots.finished(figure, titles, "LeRF perplexity", "What it costs", below, bottom=110, axis=scale)
