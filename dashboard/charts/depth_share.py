"""Every selector beside random rows of its own layers: the difference, and the share that depths explain."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, palette
from dashboard.charts.lines import finished

Row = dict[str, Any]


def shares(specific: pl.DataFrame) -> go.Figure:
    """The share of the advantage over random that depths explain, with its interval; 100%: all of it.

    specific: one order and rate of the table. Selectors without a clear advantage have no share and no mark.
    """
    figure = _marks(specific, "depth_share", "depth_share_low", "depth_share_high")
    figure.add_vline(1.0, line=palette.DOTTED)
    figure.update_xaxes(title={"text": "share explained by depth", "standoff": 5}, tickformat=".0%", rangemode="tozero")
    return finished(figure, "Explained by depth", "further left: more than its depths", _height(specific))


def differences(specific: pl.DataFrame, order: str) -> go.Figure:
    """NLL of the selector's mask minus its layer-matched controls', with its interval. One order and rate."""
    figure = _marks(specific, "difference", "low", "high")
    figure.add_vline(0.0, line=palette.DOTTED)
    figure.update_xaxes(title={"text": "nats per token from its own controls", "standoff": 5}, zeroline=False)
    better = "left of 0: less harm than random rows of its layers" if order == "lerf" else "right of 0: more harm"
    return finished(figure, "Against its own layer-matched controls", better, _height(specific))


def _height(specific: pl.DataFrame) -> int:
    return 190 + 34 * specific.height


def _marks(specific: pl.DataFrame, value: str, low: str, high: str) -> go.Figure:
    figure = go.Figure()
    rows = {row["selector"]: row for row in specific.iter_rows(named=True)}
    names = palette.in_order(list(rows))
    for place, name in enumerate(names):
        row, look = rows[name], palette.style(name)
        if row[value] is None or not math.isfinite(row[value]):
            continue
        figure.add_scatter(
            x=[row[value]], y=[place], name=look.title, mode="markers", showlegend=False, cliponaxis=False,
            marker={"color": look.colour, "symbol": look.symbol, "size": 13},
            error_x=axes.intervals([(row[value], row[low], row[high])]),
            customdata=[_hover(row)], hovertemplate=f"<b>{look.title}</b><br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(**axes.places([palette.title(name) for name in names]), automargin=True)
    return figure


def _hover(row: Row) -> str:
    lines = [f"{row['difference']:+.4f} nats per token from its controls: {row['answer']}"]
    if row["low"] is not None:
        lines.append(f"95% interval {row['low']:+.4f} to {row['high']:+.4f}, p {row['p_holm']:.2g} after Holm")
    lines.append(f"advantage over random {row['advantage']:+.4f}, its controls' {row['control_advantage']:+.4f}")
    if row["depth_share"] is not None:
        ends = f"{row['depth_share_low']:.0%} to {row['depth_share_high']:.0%}"
        lines.append(f"{row['depth_share']:.0%} explained by depth ({ends})")
    return "<br>".join(lines)
