"""One line per selector over rates, blocks or calibration sizes: the figure that several pages share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, formats, palette
from dashboard.charts.axes import decade_ticks
from dashboard.charts.formats import LN10

HEIGHT, TOP, BOTTOM = 400, 66, 120  # pixels; below the plot: ticks, axis title, three lines of legend
Row = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """A column and how its axis looks. kind: `number`, `share` (percent), `category` or `perplexity` (from NLL)."""

    column: str
    title: str
    kind: str = "number"
    span: tuple[float, float] | None = None

    def place(self, value: float | None) -> float | str | None:
        """Where a value stands on the axis; None where it cannot stand anywhere."""
        if value is None or not math.isfinite(value):
            return None
        if self.kind == "category":
            return f"{value:g}"
        return value / LN10 if self.kind == "perplexity" else value


def lines(
    frame: pl.DataFrame, x: Axis, y: Axis, *, heading: str, below: str = "", error: str | None = None,
    hover: Callable[[Row], str], reference: tuple[float, str] | None = None,
) -> go.Figure:  # fmt: skip
    """Lines in every selector's own colour, dash and symbol. Values that are null or not finite leave a gap.
    frame: column `selector`, those of the axes, `error` (in the unit of y, drawn as bars). below: under the heading.
    hover: text of one row. reference: height and name of a dotted line."""
    figure, heights = go.Figure(), []
    for selector in palette.in_order(frame["selector"]):
        rows = list(frame.filter(pl.col("selector") == selector).sort(x.column).iter_rows(named=True))
        placed = [y.place(row[y.column]) for row in rows]
        heights += [value for value in placed if isinstance(value, float | int)]
        unit = LN10 if y.kind == "perplexity" else 1.0
        errors = [None if row[error] is None else row[error] / unit for row in rows] if error else []
        across, told = [x.place(row[x.column]) for row in rows], list(map(hover, rows))
        figure.add_trace(selector_line(selector, across, placed, told, error_y=axes.errors(errors)))
    if reference and math.isfinite(reference[0]):
        at = y.place(reference[0])
        heights.append(float(at or 0.0))
        axes.level(figure, reference[1], y=at, at="bottom left")  # at the right end stand names
    figure.update_xaxes(**_looks(x, []), title_standoff=5)
    figure.update_yaxes(**_looks(y, heights))
    if y.kind == "share" and heights and max(heights) == min(heights):
        figure.update_yaxes(range=[heights[0] - 0.1, heights[0] + 0.1])  # a flat line, or plotly's axis is 200% high
    return finished(figure, heading, below)


def selector_line(
    selector: str, x: Sequence[Any], y: Sequence[Any], hover: Sequence[str], **more: Any
) -> dict[str, Any]:
    """A line with marks in the selector's own look, as plotly takes it."""
    look = palette.style(selector)
    return {
        "type": "scatter", "x": x, "y": y, "name": look.title, "mode": "lines+markers",
        "line": {"color": look.colour, "width": 2, "dash": look.dash},
        "marker": {"color": look.colour, "size": 7, "symbol": look.symbol},
        "customdata": hover, "hovertemplate": f"<b>{look.title}</b><br>%{{customdata}}<extra></extra>", **more,
    }  # fmt: skip


def _looks(axis: Axis, placed: Sequence[float]) -> dict[str, Any]:
    looks: dict[str, Any] = {"title": {"text": axis.title}, "zeroline": False}
    if axis.span:
        looks["range"] = list(axis.span)
    if axis.kind == "share":
        looks |= {"tickformat": ".3~%"}
    elif axis.kind == "category":
        looks |= {"type": "category"}
    elif axis.kind == "perplexity":
        looks |= perplexity_scale(placed)
    return looks


def perplexity_scale(heights: Sequence[float], share: float = 0.06, least: float = 0.03) -> dict[str, Any]:
    """Range and labels 10^n of an axis that holds log10 perplexities, the finite ones, with a margin on both sides: a
    share of their span, and no less than `least`, so that what hardly differs looks so."""
    heights = [height for height in heights if math.isfinite(height)]
    low, high = (min(heights), max(heights)) if heights else (0.0, 1.0)
    margin = max(share * (high - low), least)
    low, high = low - margin, high + margin
    ticks = decade_ticks(low, high)
    return {
        "range": [low, high], "tickmode": "array", "tickvals": ticks,
        "ticktext": [formats.power_tick(tick) for tick in ticks], "zeroline": False,
    }  # fmt: skip


def finished(
    figure: go.Figure, heading: str, below: str = "", height: int = HEIGHT, bottom: int = BOTTOM, *, top: int = TOP
) -> go.Figure:
    """Heading, height, and the legend under the plot."""
    return figure.update_layout(layout(heading, below, height, bottom, top=top))


def layout(
    heading: str, below: str = "", height: int = HEIGHT, bottom: int = BOTTOM, *, top: int = TOP
) -> dict[str, Any]:
    """What `finished` gives a figure, for one that is made with it."""
    text = f"{heading}<br><sub>{below}</sub>" if below else heading
    return {
        "title": {"text": text, "x": 0, "y": 1 - 24 / height, "yanchor": "top"},
        "height": height, "hovermode": "closest", "dragmode": False,
        "margin": {"l": 10, "r": 10, "t": top, "b": bottom},
        "legend": {
            "orientation": "h", "yanchor": "top", "y": -52 / (height - top - bottom), "xanchor": "left", "x": 0,
        },
    }  # fmt: skip
