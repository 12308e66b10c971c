"""Figures of the Learn page."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dashboard.charts import axes, dots, formats, lines, matrix, palette
from dashboard.charts.formats import LN10
from engine.studies.estimate_words import GLOSSARY

HEIGHT = 380
_NEAR, _WEIGHTS_PX = 3, 480  # neighbours on either side of a row
_MARGIN = {"l": 10, "r": 10, "t": 60, "b": 10}
ORDER_LOOKS = {  # LeRF and MoRF apart by dash, symbol and height, not by colour alone
    "lerf": (GLOSSARY["LeRF"], "dash", "circle-open"),
    "morf": (GLOSSARY["MoRF"], "solid", "circle"),
}


def weights(values: npt.NDArray[np.float32], row: int, zeroed: bool) -> go.Figure:
    """A weight matrix as it is in the file, with one row pointed at, or with that row zeroed, and above it the row
    among its neighbours, large enough to be seen. values [rows, columns]"""
    shown = values.copy()
    if zeroed:
        shown[row] = 0
    limit = float(np.quantile(np.abs(values), 0.99)) or 1.0
    figure = make_subplots(rows=2, cols=1, row_heights=[0.34, 0.66], vertical_spacing=0.16, shared_xaxes=True)
    first, last = max(0, row - _NEAR), min(values.shape[0], row + _NEAR + 1)
    for place, (low, high) in enumerate(((first, last), (0, values.shape[0])), start=1):
        figure.add_heatmap(
            z=shown[low:high], y=list(range(low, high)), coloraxis="coloraxis",
            hovertemplate="row %{y}, input %{x}: %{z:.4f}<extra></extra>", row=place, col=1,
        )  # fmt: skip
        for x, symbol in ((-0.5, "triangle-right"), (values.shape[1] - 0.5, "triangle-left")):
            figure.add_scatter(  # outside the row, which a frame would hide
                x=[x], y=[row], mode="markers", showlegend=False, hoverinfo="skip", cliponaxis=False,
                marker={"symbol": symbol, "size": 11, "color": palette.STYLES["ig"].colour}, row=place, col=1,
            )  # fmt: skip
    figure.update_xaxes(showgrid=False, zeroline=False, range=[-0.5, values.shape[1] - 0.5])
    figure.update_xaxes(**axes.titled("input"), row=2, col=1)
    named = [row, *(one for one in (first, last - 1) if abs(one - row) > 1)]  # so that large type has room
    near, whole = [last - 0.5, first - 0.5], [values.shape[0] - 0.5, -0.5]
    figure.update_yaxes(**axes.titled("row", showgrid=False, range=near, tickvals=named), row=1, col=1)
    figure.update_yaxes(**axes.titled("row = output", showgrid=False, range=whole), row=2, col=1)
    colours = {"colorscale": matrix.DIVERGING, "cmin": -limit, "cmax": limit, "colorbar": {"title": "weight"}}
    figure.update_layout(coloraxis=colours)
    state = "zeroed: every number in it is 0" if zeroed else "among its neighbours"
    below = f"{values.shape[0]:,} rows of {values.shape[1]:,} numbers"
    return _titled(figure, f"Row {row} {state}, and the whole matrix", below, height=_WEIGHTS_PX)


def outputs(before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]) -> go.Figure:
    """Outputs of a matrix for one made-up input, as it is (rings) and with a row zeroed (dots)."""
    places = list(range(before.size))
    figure = go.Figure()
    for values, name, symbol, colour, size in (
        (before, "as it is", "circle-open", palette.BEFORE, 9),
        (after, "row zeroed", "circle", palette.AFTER, 4),
    ):
        figure.add_scatter(
            x=places, y=values, mode="markers", name=name, marker={"symbol": symbol, "color": colour, "size": size},
            hovertemplate=f"output %{{x}}, {name}: %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    changed = np.flatnonzero(before != after)
    figure.add_scatter(
        x=changed, y=after[changed], mode="markers", name="differs", hoverinfo="skip",
        marker={"symbol": "diamond-open", "size": 16, "color": palette.STYLES["ig"].colour, "line": {"width": 2}},
    )  # fmt: skip
    figure.update_xaxes(**axes.titled("output"))
    figure.update_yaxes(title={"text": "value", "standoff": 5}, zeroline=True)
    figure.update_layout(legend={"orientation": "h", "yanchor": "bottom", "y": 1, "x": 0})
    return _titled(figure, "Its outputs, with and without the row", "", top=90)


def curves(
    points: pl.DataFrame, selector: str, orders: Sequence[str], unmasked_nll: float, marked: float | None = None
) -> go.Figure:
    """Perplexity of one selector against removed rows; LeRF and MoRF in one figure. marked: a rate to point at."""
    look = palette.style(selector)
    figure, heights = go.Figure(), [unmasked_nll / LN10]
    for order in orders:
        name, dash, symbol = ORDER_LOOKS[order]
        rows = points.filter(pl.col("order") == order, pl.col("nll").is_finite()).sort("rate")
        placed = [nll / LN10 for nll in rows["nll"]]
        heights += placed
        figure.add_scatter(
            x=rows["rate"].to_list(), y=placed, mode="lines+markers", name=name if len(orders) > 1 else look.title,
            line={"color": look.colour, "width": 2, "dash": dash if len(orders) > 1 else look.dash},
            marker={"color": look.colour, "size": 7, "symbol": symbol},
            customdata=[
                f"{formats.rate(rate)} of the rows zeroed<br>perplexity {formats.perplexity(nll)} (NLL {nll:.4f})"
                for rate, nll in rows.select("rate", "nll").iter_rows()
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    axes.level(figure, "no row zeroed", y=unmasked_nll / LN10)
    if marked is not None:
        figure.add_vline(x=marked, line={"color": palette.REFERENCE, "width": 1})
    figure.update_yaxes(title={"text": "perplexity", "standoff": 5}, **lines.perplexity_scale(heights))
    figure.update_xaxes(**axes.titled("rows zeroed", tickformat=".0%"))
    return lines.finished(figure, f"{look.title}: perplexity as rows are zeroed", "", bottom=90)


def stable_and_valid(both: pl.DataFrame, stable_from: float) -> go.Figure:
    """Stability (Spearman) to the right, validity (log gap) upwards, one mark per selector. `stability_and_gap`."""
    figure = go.Figure()
    for selector in palette.in_order(both["selector"]):
        look = palette.style(selector)
        row: dict[str, Any] = both.filter(pl.col("selector") == selector).row(0, named=True)
        figure.add_scatter(
            x=[row["spearman"]], y=[row["log_gap"]], mode="markers", name=look.title,
            marker={"color": look.colour, "symbol": look.symbol, "size": 13},
            hovertemplate=f"<b>{look.title}</b><br>Spearman %{{x:.4f}} ({row['size']} windows against all)<br>"
            f"log gap %{{y:.3f}} nats at {formats.rate(row['rate'])}<extra></extra>",
        )  # fmt: skip
    axes.level(figure, f"stable: from {stable_from:g}", x=stable_from, at="top left")
    figure.add_hline(y=0, line={"color": palette.REFERENCE, "width": 1})
    figure.update_xaxes(**axes.titled("stability: Spearman correlation"))
    figure.update_yaxes(**axes.titled("validity: log gap (nats)"))
    return lines.finished(figure, "Stable and right are two things", "")


def refusals(bars: pl.DataFrame, heading: str) -> go.Figure:
    """Refused shares. Columns group, name, share, low, high (null where not known): a line per group and name."""
    names = bars["name"].unique(maintain_order=True).to_list()
    looks = [(palette.BEFORE, "circle-open"), (palette.AFTER, "diamond"), (palette.STYLES["ig"].colour, "x")]
    looks.append(("#B70D9B", "square"))
    rows = list(bars.iter_rows(named=True))
    titles = [f"{html.escape(row['group'])},<br>{html.escape(row['name'])}" for row in rows]
    figure = go.Figure()
    for name, (colour, symbol) in zip(names, looks, strict=False):
        marks = [
            dots.Dot(place, row["share"], f"{title}: {row['share']:.1%} refused", row["low"], row["high"])
            for place, (row, title) in enumerate(zip(rows, titles, strict=True)) if row["name"] == name
        ]  # fmt: skip
        dots.add(figure, name, marks, colour, symbol, size=13)
    return dots.finished(figure, titles, "refused", heading, row_px=52, bottom=100, axis=dots.SHARE)


def _titled(figure: go.Figure, heading: str, below: str, top: int = 60, height: int = HEIGHT) -> go.Figure:
    text = f"{heading}<br><sub>{below}</sub>" if below else heading
    figure.update_layout(
        title={"text": text, "x": 0, "y": 1 - 22 / height, "yanchor": "top"}, height=height,
        margin={**_MARGIN, "t": top}, dragmode=False, hovermode="closest",
    )  # fmt: skip
    return figure
