"""Small multiples: the curves of several models in one grid, all on the same axes. No streamlit here."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dashboard.charts import curves as curve_chart, figure_size, lines, palette
from dashboard.charts.formats import LN10

_PANEL_PX, _BETWEEN_PX, _TOP_PX, _BOTTOM_PX, _LINE_PX = 190, 46, 96, 120, 15
_LETTERS, _LEAST_LETTERS = 120, 14  # of the names above one row of panels; of a line of one of them


@dataclass(frozen=True)
class Panel:
    """One model: its name, its points (`series.points`), the NLL of the unmasked model (nats). order: where it is not
    the figure's."""

    name: str
    points: pl.DataFrame
    baseline: float | None
    order: str = ""


def multiples(panels: Sequence[Panel], order: str, *, columns: int, relative: bool) -> go.Figure:
    """One panel per model under one order ("": each panel's own); the legend stands once.
    Published cells at a numerical ceiling do not stretch the shared axis; those above it, like values that are not
    finite, are not drawn. relative: as in `curves.curves`; a panel whose unmasked model is not known is empty then."""
    rows = math.ceil(len(panels) / columns)
    names = [wrap(panel.name, max(_LEAST_LETTERS, _LETTERS // columns)) or [""] for panel in panels]
    more = _LINE_PX * (max(map(len, names)) - 1)  # for names in several lines
    between = _BETWEEN_PX + more
    plots = rows * _PANEL_PX + (rows - 1) * between
    figure = make_subplots(
        rows=rows, cols=columns, shared_xaxes=True, shared_yaxes=True, horizontal_spacing=0.04,
        vertical_spacing=between / plots if rows > 1 else 0,
        subplot_titles=["<br>".join(map(html.escape, lines_of)) for lines_of in names],
    )  # fmt: skip
    heights: list[float] = []
    named: set[str] = set()
    for place, panel in enumerate(panels):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        shift = curve_chart.subtracted(panel.baseline, relative)
        if shift is None:
            continue
        part = panel.points.filter(order=panel.order or order)
        for selector in palette.in_order(part["selector"].to_list()):
            own = part.filter(selector=selector)
            trace = curve_chart.curve(own, selector, shift) | {"showlegend": selector not in named}
            named.add(selector)  # in the legend only the first time; a click there hides it in every panel
            figure.add_trace(trace, **at)
            below = own.filter(~pl.col("plateau"), pl.col("nll").is_finite())["nll"]
            heights += [(nll - shift) / LN10 for nll in below]
        if panel.baseline is not None:
            heights.append((panel.baseline - shift) / LN10)
            figure.add_hline(y=heights[-1], line=palette.DOTTED, **at)
    scale = curve_chart.perplexity_scale(heights, relative)
    figure.update_yaxes(scale | {"title": None})
    figure.update_yaxes(title=scale["title"], col=1)
    figure.update_xaxes(tickformat=".0%", tick0=0, nticks=6 if columns < 4 else 4, tickangle=0, zeroline=False)
    for note in figure.layout.annotations:
        note.font.size = figure_size.NOTE_PX + 1
    first, second = curve_chart.ORDER_HEADINGS.get(order, ("", ""))
    lines.finished(figure, first, second, plots + _TOP_PX + more + _BOTTOM_PX, _BOTTOM_PX, top=_TOP_PX + more)
    return figure.update_layout(title_yref="container", legend_y=-36 / plots)
