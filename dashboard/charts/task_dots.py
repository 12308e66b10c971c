"""Accuracy on every task at one share of removed rows, a panel per task and a line per selector."""

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import dots, palette
from dashboard.charts.dots import Dot
from dashboard.charts.findings.curve_findings import cleared

_DASHES = {"chance": "dot", "all rows": "solid"}


def at_rate(
    panels: Mapping[str, pl.DataFrame], rate: float, below: str, hover: Callable[[dict[str, Any]], str]
) -> go.Figure:
    """Every panel's accuracy with all rows and that by chance as lines, and each selector's with what it must clear
    chance by (`cleared`), on both sides, within 0 to 1: filled where it does.
    panels: by title: the columns of `over_seeds`. Those that keep most of the first panel stand first."""
    at = {title: cleared(points, rate) for title, points in panels.items()}
    first = next(iter(at.values())).sort("accuracy", descending=True, maintain_order=True)
    order = first["selector"].to_list()
    figure, places = dots.panels(
        list(panels), list(map(palette.title, order)), "answered rightly", "Tasks at one rate", below,
        {**dots.SHARE, "tickvals": [0, 0.5, 1]},
    )  # fmt: skip
    figure.layout.annotations[0].yshift = 14  # above the lines' names
    for (title, points), where in zip(panels.items(), places, strict=True):
        for row in at[title].iter_rows(named=True):
            look, share, need = palette.style(row["selector"]), row["accuracy"], row["need"]
            ends = (None, None) if need is None else (max(share - need, 0.0), min(share + need, 1.0))
            text = f"<b>{look.title}</b><br>{hover({**row, 'bar': need})}"
            dot = Dot(order.index(row["selector"]), share, text, *ends)
            over = row["chance"] is None or share - (need or 0.0) > row["chance"]
            symbol = look.symbol + "-open" * (not over)
            dots.add(figure, look.title, [dot], look.colour, symbol, size=12, legend=False, where=where)
        known = (points["chance"].mean(), points.filter(pl.col("rate") == 0)["accuracy"].mean())
        for level, (name, dash) in zip(known, _DASHES.items(), strict=True):
            if isinstance(level, float):
                note = {"text": name * (title == next(iter(panels))), "font": {"color": palette.REFERENCE}}
                figure.add_vline(
                    level, line={**palette.DOTTED, "dash": dash}, annotation=note, annotation_position="top", **where
                )
    return figure
