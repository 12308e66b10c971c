"""Figures of the Learn page."""

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dashboard.charts import axes, dots, formats, lines, matrix, palette
from dashboard.charts.curves import curve
from dashboard.charts.figure_size import BASE_PX
from dashboard.charts.formats import LN10
from engine.studies.estimate_words import GLOSSARY

_BELOW_PX = 40  # below the plot
_BARS = "Bars: 95% intervals; of random rows, spread of seeds"
ORDER_LOOKS = {  # LeRF and MoRF apart by dash, symbol and height, not by colour alone
    "lerf": (GLOSSARY["LeRF"], "dash", "circle-open"),
    "morf": (GLOSSARY["MoRF"], "solid", "circle"),
}


def weights(
    values: npt.NDArray[np.float32], row: int, given: npt.NDArray[np.float64], out: npt.NDArray[np.float64],
    *, zeroed: bool = False, around: int = 3,
) -> go.Figure:  # fmt: skip
    """A row of a matrix among its neighbours, as they are in the file or with that row zeroed: above them the numbers
    that come in, to their right what each makes of these. Each list has colours by its own largest numbers.
    values [rows, columns], given [columns], out [rows]; around: neighbours on either side"""
    count, columns = values.shape
    first, last = max(0, row - around), min(count, row + around + 1)
    shown, near = values[first:last].copy(), list(range(first, last))
    if zeroed:
        shown[row - first] = 0
    figure = make_subplots(
        rows=2, cols=2, specs=[[{}, None], [{}, {}]], shared_xaxes=True, shared_yaxes=True, horizontal_spacing=0.04,
        vertical_spacing=0.06, column_widths=[0.82, 0.18], row_heights=[0.13, 0.87],
    )  # fmt: skip
    for name, part, whole, y, places in (
        ("input", given[None], given, [0], (1, 1)),
        ("weight", shown, values, near, (2, 1)),
        ("output", out[first:last, None], out, near, (2, 2)),
    ):
        figure.add_heatmap(
            z=part / (float(np.quantile(np.abs(whole), 0.99)) or 1.0), y=y, customdata=part, coloraxis="coloraxis",
            name=name, hovertemplate=f"{name}: %{{customdata:.4f}}<extra></extra>", row=places[0], col=places[1],
        )  # fmt: skip
    text = [[f"{out[one]:.1f}"] for one in near]
    figure.data[-1].update(text=text, texttemplate="%{text}", textfont={"size": BASE_PX})
    for x, col in ((columns, 1), (1, 2)):
        edges = {"x0": -0.5, "x1": x - 0.5, "y0": row - 0.5, "y1": row + 0.5}
        figure.add_shape(**edges, line={"width": 2, "color": matrix.OUTLINE}, row=2, col=col)
    figure.update_yaxes(showgrid=False, zeroline=False)
    figure.update_xaxes(showgrid=False, tickvals=[])
    for col, title in ((1, f"{columns} weights of each row"), (2, "output")):
        figure.update_xaxes(**axes.titled(title), row=2, col=col)
    figure.update_yaxes(tickvals=[0], ticktext=["input"], row=1, col=1)
    names = {"tickvals": near, "ticktext": [f"row {one}" for one in near]}
    figure.update_yaxes(range=[last - 0.5, first - 0.5], **names, row=2, col=1)
    key = {"title": "number", "tickvals": [-1, 0, 1], "ticktext": ["negative", "0", "positive"]}
    figure.update_layout(coloraxis={"colorscale": matrix.DIVERGING, "cmin": -1, "cmax": 1, "colorbar": key})
    heading = f"Row {row} {'zeroed: its output is 0' if zeroed else 'as it is'}"
    return lines.finished(figure, heading, f"{len(near)} of {count:,} rows of a matrix of the model", bottom=_BELOW_PX)


def curves(
    points: pl.DataFrame, selector: str, orders: Sequence[str], unmasked_nll: float, marked: float,
    factors: Sequence[float] = (),
) -> go.Figure:  # fmt: skip
    """Perplexity of one selector against removed rows; LeRF and MoRF in one figure. marked: a rate to point at.
    factors: how many times as high as without a cut a line is to stand."""
    figure = go.Figure()
    for order in orders:
        trace = curve(points.filter(order=order).sort("rate"), selector, 0.0)
        if len(orders) > 1:
            name, dash, symbol = ORDER_LOOKS[order]
            looks = {"line": trace["line"] | {"dash": dash}, "marker": trace["marker"] | {"symbol": symbol}}
            trace |= {"name": name, **looks}
        figure.add_trace(trace)
    heights = [height for trace in figure.data for height in trace.y if height is not None]
    for text, factor in {"no row zeroed": 1, **{f"{one:g} times as high": one for one in factors}}.items():
        heights.append(unmasked_nll / LN10 + math.log10(factor))
        axes.level(figure, text, y=heights[-1])
    figure.add_vline(x=marked, line={"color": palette.REFERENCE, "width": 1})
    last = max(points["rate"].to_list())
    figure.update_yaxes(title={"text": "perplexity", "standoff": 5}, **lines.perplexity_scale(heights))
    figure.update_xaxes(**axes.titled("rows zeroed", tickformat=".0%", range=[-0.03, last + 0.03]))
    return lines.finished(figure, f"{palette.title(selector)}: perplexity as rows are zeroed", _BARS, bottom=90)


def stable(both: pl.DataFrame, stable_from: float) -> go.Figure:
    """How stable every selector is, without a word on its gap. `stability_and_gap`."""
    figure, titles = dots.by_selector(
        both, lambda row: (row["spearman"], f"Spearman {row['spearman']:.4f} ({row['size']} windows)", None, None)
    )
    axes.level(figure, f"stable: from {stable_from:g}", x=stable_from, at="top left")
    return dots.finished(figure, titles, "stability: Spearman correlation", "")


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
