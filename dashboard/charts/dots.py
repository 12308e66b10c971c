"""Marks with intervals in lines from above, the figure of many tables: one series or several, a line per selector, set
of prompts or model."""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, lines, palette

SHARE = {"range": [-0.03, 1.03], "tickformat": ".0%"}  # of an axis of rates, with room for marks at its ends


class Dot(NamedTuple):
    """A mark. place: of its line, from 0 at the top; low, high: the ends of its interval in the unit of x, if it has
    one; hover: its text. Without a finite x there is no mark."""

    place: float
    x: float | None
    hover: str
    low: float | None = None
    high: float | None = None


def add(
    figure: go.Figure, name: str, dots: Iterable[Dot], colour: str | Sequence[str], symbol: str, *, size: float = 11,
    legend: bool = True,
) -> None:  # fmt: skip
    """One series, in one colour or one for each dot: then its symbol stands in grey in the legend, since the colour of
    the first dot would look like that one's."""
    dots, several = list(dots), not isinstance(colour, str)
    name = html.escape(name)
    figure.add_scatter(
        x=[axes.finite(dot.x) for dot in dots], y=[dot.place for dot in dots], mode="markers", name=name,
        cliponaxis=False, showlegend=legend and not several,
        marker={"color": colour, "symbol": symbol, "size": size, "line": {"width": 2, "color": colour}},
        error_x=axes.intervals(
            [(dot.x, dot.low, dot.high) for dot in dots], thickness=1.5,
            colour=palette.REFERENCE if several else colour,  # type: ignore[arg-type]
        ),
        customdata=[dot.hover for dot in dots], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    if legend and several:
        key = {"symbol": symbol, "size": size, "color": palette.REFERENCE}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=key)


def by_selector(
    table: pl.DataFrame, dot: Callable[[dict[str, Any]], tuple[float | None, str, float | None, float | None]]
) -> tuple[go.Figure, list[str]]:
    """A figure with a line and a mark in its own look per selector, and the lines' names.
    dot: of a row of the table its x, what the hover says below the name, and the ends of the interval."""
    figure, titles = go.Figure(), list[str]()
    for place, row in enumerate(palette.sorted_by_selector(table).iter_rows(named=True)):
        look = palette.style(row["selector"])
        x, hover, low, high = dot(row)
        text = f"<b>{html.escape(look.title)}</b><br>{hover}"
        add(figure, look.title, [Dot(place, x, text, low, high)], look.colour, look.symbol, size=13, legend=False)
        titles.append(html.escape(look.title))
    return figure, titles


def shifts(count: int, step: float = 0.22) -> list[float]:
    """Where so many series stand around the middle of a line."""
    return [(number - (count - 1) / 2) * step for number in range(count)]


def finished(
    figure: go.Figure, labels: Sequence[str], title: str, heading: str, below: str = "", *, row_px: int = 34,
    bottom: int = 60, axis: Mapping[str, Any] | None = None,
) -> go.Figure:  # fmt: skip
    """Names beside the lines, the axis of the values, heading and height.
    bottom: pixels below the plot; axis: what else plotly is to know of the axis."""
    figure.update_xaxes(**axes.titled(title, **(axis or {})))
    figure.update_yaxes(**axes.places(labels), automargin=True)
    height = lines.TOP + bottom + row_px * max(len(labels), 2)
    return lines.finished(figure, heading, below, height, bottom)
