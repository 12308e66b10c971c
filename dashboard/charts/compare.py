"""The difference of two runs against removed rows. No streamlit here."""

from __future__ import annotations

import html
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import formats, lines, series


def difference(cells: pl.DataFrame, order: str, first: str, second: str) -> go.Figure:
    """NLL of the second run minus the first's, in nats per token (`runs_compare.shared_cells`).

    The figures of both orders have the same axes.
    """
    finite = cells.filter(pl.col("difference").is_finite())
    values = [*finite["difference"], 0.0]
    room = max(0.08 * (max(values) - min(values)), 0.01)
    y = lines.Axis("difference", "difference (nats per token)", span=(min(values) - room, max(values) + room))
    return lines.lines(
        finite.filter(order=order), lines.Axis("rate", "rows removed", "share"), y,
        heading=f"{series.ORDER_TITLES[order]}: {html.escape(second)} − {html.escape(first)}",
        below="above 0 the second run is worse", hover=_hover, reference=(0.0, "no difference"),
    )  # fmt: skip


def _hover(row: dict[str, Any]) -> str:
    return (
        f"removed {formats.rate(row['rate'])}<br>difference {row['difference']:+.4f} nats<br>"
        f"perplexity {formats.perplexity(row['nll_a'])} → {formats.perplexity(row['nll_b'])}"
    )
