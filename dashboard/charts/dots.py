"""Marks with intervals in lines from above, the figure of many tables: one series or several, a line per selector, set
of prompts or model."""

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dashboard.charts import axes, figure_size, lines, palette

_LINE_PX, _BETWEEN_PX, _BOTTOM_PX, _TOP_PX = 34, 58, 84, 24  # of panels
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
    legend: bool = True, where: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """One series, in one colour or one for each dot: then its symbol stands in grey in the legend, since the colour of
    the first dot would look like that one's. where: of `panels`."""
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
        customdata=[dot.hover for dot in dots], hovertemplate="%{customdata}<extra></extra>", **(where or {}),
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


def panels(
    titles: Sequence[str], labels: Sequence[str], title: str, heading: str, below: str, axis: Mapping[str, Any]
) -> tuple[go.Figure, list[dict[str, int]]]:
    """A figure with a plot under every title, all with the same lines, and plotly's row and column of each: of several
    the first above all others, of which at most four stand beside each other, in rows of equally many.
    title: of the values; axis: what else plotly is to know of that one, its tickvals among it."""
    below_it = math.ceil((len(titles) - 1) / 4)  # rows
    columns, rows = math.ceil(max(len(titles) - 1, 1) / max(below_it, 1)), 1 + below_it
    height = rows * _LINE_PX * max(len(labels), 2) + (rows - 1) * _BETWEEN_PX
    figure = make_subplots(
        rows=rows, cols=columns, shared_yaxes=True, horizontal_spacing=0.03,
        specs=[[{"colspan": columns}] + [None] * (columns - 1)] + [[{}] * columns] * (rows - 1),
        vertical_spacing=_BETWEEN_PX / height if rows > 1 else 0, subplot_titles=list(map(html.escape, titles)),
    )  # fmt: skip
    others = [{"row": number // columns + 2, "col": number % columns + 1} for number in range(len(titles) - 1)]
    where = [{"row": 1, "col": 1}, *others]
    figure.update_yaxes(**axes.places(list(map(html.escape, labels))), automargin=True)
    figure.update_xaxes(**{"zeroline": False, **axis})
    figure.update_annotations(font_size=figure_size.NOTE_PX + 1)
    if len(titles) > 1:  # there is room for twice as many
        ticks = axis["tickvals"]
        between = [(a + b) / 2 for a, b in pairwise(ticks)]
        texts = [*(f"{tick:.0%}" if tick else "0" for tick in ticks[:-1]), ""]  # of a phone's narrow panels
        figure.update_xaxes(ticktext=texts, tickangle=0)
        figure.update_xaxes(tickvals=sorted([*ticks, *between]), ticktext=None, row=1, col=1)
    figure.update_xaxes(**axes.titled(title), **where[-1 - (len(where[1:]) - 1) % columns // 2])
    top = lines.TOP + _TOP_PX
    return lines.finished(figure, heading, below, top + height + _BOTTOM_PX, _BOTTOM_PX, top=top), where
