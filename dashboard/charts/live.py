"""The refusal margin along replies of a live edit."""

from __future__ import annotations

import html
from collections.abc import Mapping

import plotly.graph_objects as go

from dashboard.charts import axes, palette
from dashboard.charts.lines import finished

Along = tuple[tuple[str, float], ...]
_LOOKS = {  # side -> name, colour, dash, symbol
    "before": ("before", palette.BEFORE, "dash", "circle-open"),
    "after": ("after", palette.AFTER, "solid", "diamond"),
    "control": ("control", "#C61620", "dot", "x"),
}


def margins_along(sides: Mapping[str, Along]) -> go.Figure:
    """Margin before every token of each side's own reply, and after its last one; above 0 it leans to refusing."""
    figure = go.Figure()
    for side, along in sides.items():
        name, colour, dash, symbol = _LOOKS[side]
        figure.add_scatter(
            x=list(range(len(along))), y=[margin for _, margin in along], mode="lines+markers", name=name,
            line={"color": colour, "width": 2, "dash": dash}, marker={"color": colour, "symbol": symbol, "size": 7},
            customdata=[html.escape(repr(token)) if token else "the end of what was written" for token, _ in along],
            hovertemplate=f"<b>{name}</b>, after %{{x}} tokens<br>margin %{{y:.4f}}<br>next: %{{customdata}}"
            "<extra></extra>",
        )  # fmt: skip
    axes.level(figure, "above: leans to refusing", y=0, at="top right")
    figure.update_xaxes(**axes.titled("tokens of the reply so far"))
    figure.update_yaxes(**axes.titled("margin (logits)"))
    return finished(figure, "Margin along the reply", "each side along its own words", 320, bottom=90)
