"""Accuracy on every task at one share of removed rows, a panel per task and a line per selector."""

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, palette
from dashboard.charts.dots import Dot


def at_rate(
    panels: Mapping[str, pl.DataFrame], rate: float, below: str, hover: Callable[[dict[str, Any]], str]
) -> go.Figure:
    """Every panel's accuracy with all rows and that by chance, dotted, and each selector's with its error.
    panels: by title: selector, rate, accuracy, error, chance. Those that keep most of the first panel stand first."""
    first = next(iter(panels.values()))
    ranked = _at(first, rate).sort("accuracy", descending=True, nulls_last=True, maintain_order=True)
    order = ranked["selector"].to_list()
    figure, places = dots.panels(
        list(panels), list(map(palette.title, order)), "answered rightly", "Tasks at one rate", below,
        {**dots.SHARE, "tickvals": [0, 0.5, 1]},
    )  # fmt: skip
    for points, where in zip(panels.values(), places, strict=True):
        for row in _at(points, rate).iter_rows(named=True):
            look, share, error = palette.style(row["selector"]), row["accuracy"], row["error"]
            ends = (None, None) if error is None else (share - error, share + error)
            dot = Dot(order.index(row["selector"]), share, f"<b>{look.title}</b><br>{hover(row)}", *ends)
            dots.add(figure, look.title, [dot], look.colour, look.symbol, size=12, legend=False, where=where)
        known = (points.filter(pl.col("rate") == 0)["accuracy"].mean(), points["chance"].mean())
        for level, name, at in zip(known, ("all rows", "chance"), ("bottom right", "bottom left"), strict=True):
            if isinstance(level, float):
                axes.level(figure, name if where == places[0] else "", x=level, at=at, **where)
    return figure


def _at(points: pl.DataFrame, rate: float) -> pl.DataFrame:
    return points.filter((pl.col("rate") - rate).abs() < 1e-9, pl.col("accuracy").is_not_null())
