"""Curves of a run that is under way, as far as they are measured."""

import math
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import curves, series
from engine.results.tables import spec
from engine.stats.removal_order import ORDERS

_MODEL = "under way"  # one run is one model
_PX, _BOTTOM = 360, 96  # pixels; below the plot: ticks, axis title, two lines of legend
_MARGIN = 0.05  # of the axis of rates, at both ends


def growing(so_far: Any) -> dict[str, go.Figure]:
    """Order -> its curves, of the selectors of which rows were removed; all over the same rates.
    so_far: as the progress of a run tells it (`engine.records.progress`), {"table", "columns", "rows"}; what is none is
    no curve."""
    try:
        about = {one.name: one.dtype for one in spec("sweep").columns}
        schema = {name: about[name] for name in so_far["columns"]}
        frame = pl.DataFrame(so_far["rows"], schema=schema, orient="row")
        lacking = {"model": pl.lit(_MODEL), "printed": pl.lit(None, pl.String), "plateau": pl.lit(value=False)}
        frame = frame.with_columns(pl.col("nll").fill_null(math.nan), **lacking)
        selectors = frame["selector"].unique(maintain_order=True).to_list()
        points = series.points(frame, _MODEL, selectors, ORDERS, (0.0, 1.0))
        points = points.filter((pl.col("rate") > 0).any().over("order", "selector"))
        furthest = max(points["rate"], default=0.0)
    except (LookupError, TypeError, ValueError, pl.exceptions.PolarsError):
        return {}
    unmasked = series.unmasked_nll(frame, _MODEL)
    drawn = {order: curves.curves(points, order, baseline=unmasked) for order in ORDERS if order in points["order"]}
    for figure in drawn.values():
        figure.update_xaxes(range=[-_MARGIN * furthest, (1 + _MARGIN) * furthest])
        figure.update_layout(height=_PX, margin_b=_BOTTOM, legend={"yref": "container", "y": 0, "yanchor": "bottom"})
    return drawn
