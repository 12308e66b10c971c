"""Pieces of axes that many figures share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import plotly.graph_objects as go

from dashboard.charts import palette

_MANY_DECADES = 2.5


def titled(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title close to it and no heavy line at zero."""
    return {"title": {"text": title, "standoff": 5}, "zeroline": False, **more}


def places(labels: Sequence[str]) -> dict[str, Any]:
    """A vertical axis with one place per label, the first at the top."""
    count = len(labels)
    return {"tickvals": list(range(count)), "ticktext": list(labels), "range": [count - 0.5, -0.5], "zeroline": False}


def intervals(
    rows: Iterable[Sequence[float | None]], *, thickness: float = 1, width: float = 4, colour: str | None = None
) -> dict[str, Any]:
    """Bars from every value to both ends of its interval; no bar where one of the three is no finite number.
    rows: (value, low, high) of every mark, in one unit."""
    lengths = [
        (value - low, high - value) if is_finite(value) and is_finite(low) and is_finite(high) else None
        for value, low, high in rows
    ]
    return {
        "type": "data", "array": [length[1] if length else 0.0 for length in lengths],
        "arrayminus": [length[0] if length else 0.0 for length in lengths], "visible": any(lengths),
        "thickness": thickness, "width": width, "color": colour,
    }  # fmt: skip


def errors(sizes: Sequence[float | None]) -> dict[str, Any]:
    """Bars as long upwards as downwards; none where the error is no finite number."""
    lengths = [size if is_finite(size) else 0.0 for size in sizes]
    return {"type": "data", "array": lengths, "visible": any(lengths), "thickness": 1, "width": 3}


def is_finite(value: float | None) -> TypeGuard[float]:
    """Is there a number, and no infinity?"""
    return value is not None and math.isfinite(value)


def finite(value: float | None) -> float | None:
    """The number, None where it cannot be drawn."""
    return value if is_finite(value) else None


def joined(figure: go.Figure, ends: Mapping[int, Sequence[float]], **line: Any) -> None:
    """At each place a line between its marks, without a name and a hover."""
    points = [(x, place) for place, marks in ends.items() for x in (*marks, None)][:-1]
    x, y = [point[0] for point in points], [point[1] for point in points]
    line = {"color": palette.REFERENCE, "width": 2, **line}
    figure.add_scatter(x=x, y=y, mode="lines", showlegend=False, hoverinfo="skip", line=line)


def level(figure: go.Figure, text: str, *, at: str = "bottom right", **place: float | str | None) -> None:
    """A dotted line to compare with, and what it is; place: x or y."""
    add = figure.add_vline if "x" in place else figure.add_hline
    note = {"text": text, "font": {"color": palette.REFERENCE}}
    add(**place, line=palette.DOTTED, annotation=note, annotation_position=at)


def level_layout(text: str, y: float, size: int) -> dict[str, Any]:
    """What `level` gives a figure with one plot at a height, for one that is made with it."""
    line = {"type": "line", "xref": "x domain", "x0": 0, "x1": 1, "yref": "y", "y0": y, "y1": y}
    note = {
        "text": text, "xref": "x domain", "x": 1, "xanchor": "right", "yref": "y", "y": y, "yanchor": "top",
        "showarrow": False, "font": {"color": palette.REFERENCE, "size": size},
    }  # fmt: skip
    return {"shapes": [line | {"line": palette.DOTTED}], "annotations": [note]}


def decade_ticks(low: float, high: float) -> list[float]:
    """Heights in log10 to label: whole decades; where few are in sight 1-2-5 steps; within one, round values."""
    if high - low < 0.5:
        least, most = 10**low, 10**high  # about five round numbers
        magnitude = 10.0 ** math.floor(math.log10((most - least) / 5))
        step = next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= (most - least) / 5)
        counts = range(math.ceil(least / step), math.floor(most / step) + 1)
        return [math.log10(count * step) for count in counts]
    decades = range(math.floor(low), math.ceil(high) + 1)
    if high - low <= _MANY_DECADES:
        ticks = [decade + math.log10(step) for decade in decades for step in (1, 2, 5)]
    else:
        least = (high - low) / 7
        step = next(nice for nice in (1, 2, 5, 10, 20, 25, 50, 100, 200, 10**9) if nice >= least)
        ticks = [float(decade) for decade in decades if decade % step == 0]
    return [tick for tick in ticks if low <= tick <= high]
