"""The refusal margin along replies of a live edit."""

from __future__ import annotations

import html
from collections.abc import Mapping

import plotly.graph_objects as go

from dashboard import palette
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
        figure.add_trace(
            go.Scatter(
                x=list(range(len(along))), y=[margin for _, margin in along], mode="lines+markers", name=name,
                line={"color": colour, "width": 2, "dash": dash},
                marker={"color": colour, "symbol": symbol, "size": 7},
                customdata=[html.escape(repr(token)) if token else "the end of what was written" for token, _ in along],
                hovertemplate=f"<b>{name}</b>, after %{{x}} tokens<br>margin %{{y:.4f}}<br>next: %{{customdata}}"
                "<extra></extra>",
            )
        )  # fmt: skip
    figure.add_hline(
        y=0, line={"color": palette.REFERENCE, "width": 1, "dash": "dot"},
        annotation={"text": "above: leans to refusing", "font": {"color": palette.REFERENCE}},
        annotation_position="top right",
    )  # fmt: skip
    figure.update_xaxes(title={"text": "tokens of the reply so far", "standoff": 5}, zeroline=False)
    figure.update_yaxes(title={"text": "margin (logits)", "standoff": 5}, zeroline=False)
    return finished(figure, "Margin along the reply", "each side along its own words", 320, bottom=90)
