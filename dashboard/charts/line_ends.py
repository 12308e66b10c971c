"""Figures of lines: every line's name stands at its end instead of in a legend."""

import math
from collections.abc import Collection, Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.charts import palette

LEAST_PLOT_PX, LEAST_STAGE_PX = 280, 400  # height of a plot, on stage in a window of 1280x800; names keep apart at it
PALE, BACK = 0.35, 0.55  # opacity of lines that stand back: without a name here, with one in lighter type
MOST_LETTERS = 20  # a longer name stays in the legend, or it would take the plot's room
_LARGE_PX = 18  # type from this size on is read at the contrast that colours of lines have
_LETTER = 0.58  # mean width of a letter, as a share of the type's size
_LINE = 1.15  # height of a line, likewise
_LEADER = 0.9  # length of the stroke from a line's end to its name, likewise
_ROOM = 0.03  # of the axis, on both sides of what is drawn
_BOTTOM = 4  # margin below a plot without a legend, in sizes of the type: ticks and the axis title


def labelled(figure: go.Figure, size_px: float) -> go.Figure:
    """Writes the name of every line of the legend at the line's end, large type in its colour, and takes it out of the
    legend. In place. Pale lines, which the figure names elsewhere, have none.

    Names that would lie on each other are moved apart, by as little as that takes (least squares), with a stroke to
    their line. A figure stays as it is where it has no such lines, several plots, an axis of logarithms or dates, or
    more lines than there is room for.
    size_px: of the names; for a figure whose type and margins have their final sizes."""
    named = [(trace, end) for trace in figure.data if _is_named_line(trace) and (end := _end(trace)) is not None]
    ends = [(trace, end) for trace, end in named if trace.opacity != PALE]
    large, some_back = size_px >= _LARGE_PX, any(trace.opacity == BACK for trace, _ in ends)
    gap = _LINE * size_px / (LEAST_STAGE_PX if large else LEAST_PLOT_PX)
    if not ends or gap * (len(ends) - 1) > 1 or not _one_plain_plot(figure):
        return figure
    names = _x_range(figure)
    low, high = _y_range(figure)
    of_several = [note for note in figure.layout.annotations if note.name == "line end"]
    wanted = [*(float(y) for _, (_, y) in ends), *(note.y for note in of_several)]
    heights = apart([(y - low) / (high - low) for y in wanted], gap)
    for note, height in zip(of_several, heights[len(ends) :], strict=True):
        note.y = low + height * (high - low)
    for (trace, (x, y)), height in zip(ends, heights, strict=False):
        figure.add_annotation(
            x=names.index(x) if x in names else x, y=y, ax=_LEADER * size_px, ay=low + height * (high - low),
            axref="pixel", ayref="y", name="line end",
            text=f"<b>{trace.name}</b>" if some_back and trace.opacity is None else trace.name,
            xanchor="left", yanchor="middle", align="left", showarrow=True, arrowhead=0, arrowwidth=1.5,
            font={"color": trace.line.color if large else palette.REFERENCE, "size": size_px},
            arrowcolor=trace.line.color, standoff=2,
        )  # fmt: skip
    for trace, _ in named:
        trace.showlegend = False
    longest = max(len(trace.name) for trace, _ in ends)
    margin = figure.layout.margin
    margin.t = (margin.t or 0) + (0 if large else _LINE * size_px)  # the highest name stays below the camera
    margin.r = max(margin.r or 0, (_LETTER * longest + _LEADER + 0.5) * size_px)
    if any(_in_legend(trace) for trace in figure.data):
        figure.update_layout(showlegend=True)  # also where a single one is left
    else:
        figure.update_layout(showlegend=False)
        margin.b = min(margin.b or 0, _BOTTOM * size_px)
    return figure


def stand_back(figure: go.Figure, selectors: Collection[str]) -> str:
    """Makes the lines of these selectors pale, in place, and says which: `; pale: LRP, Random`, "" for none."""
    pale = [palette.title(name) for name in palette.in_order(selectors)]
    figure.for_each_trace(lambda trace: trace.update(opacity=PALE), selector=lambda trace: trace.name in pale)
    return f"; pale: {', '.join(pale)}" if pale else ""


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Places in [0, 1] that are at least `gap` apart, in the order of those given and as near to them as can be in the
    sum of squares (isotonic regression of place − rank · gap, cut to what the ends leave)."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    pools: list[tuple[float, int]] = []  # mean, how many
    for rank, i in enumerate(order):
        mean, count = places[i] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        pools.append((mean, count))
    most = max(0.0, 1 - gap * (len(places) - 1))
    level = [min(max(mean, 0.0), most) for mean, count in pools for _ in range(count)]
    heights = [0.0] * len(places)
    for rank, i in enumerate(order):
        heights[i] = level[rank] + rank * gap
    return heights


def _is_named_line(trace: Any) -> bool:
    return (
        trace.type == "scatter"
        and "lines" in (trace.mode or "")
        and _in_legend(trace)
        and len(trace.name) <= MOST_LETTERS
        and isinstance(trace.line.color, str)
    )


def _in_legend(trace: Any) -> bool:
    return bool(trace.name) and trace.showlegend is not False


def _end(trace: Any) -> tuple[Any, float] | None:
    """The last point that is drawn; None for a line without any."""
    points = zip(_values(trace.x), _values(trace.y), strict=False)
    return next(((x, y) for x, y in reversed(list(points)) if _drawn(y) and (isinstance(x, str) or _drawn(x))), None)


def _drawn(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _values(column: Any) -> list[Any]:
    """Plain numbers and texts, whatever holds them."""
    return [] if column is None else list(column.tolist() if hasattr(column, "tolist") else column)


def _one_plain_plot(figure: go.Figure) -> bool:
    layout = figure.layout
    single_plot = all(getattr(trace, f"{axis}axis", None) in (None, axis) for trace in figure.data for axis in "xy")
    return single_plot and layout.xaxis.type in (None, "linear", "category") and layout.yaxis.type in (None, "linear")


def _x_range(figure: go.Figure) -> list[str]:
    """Fixes what the axis shows: plotly would make it longer until the names lie within it. Returns its categories."""
    axis = figure.layout.xaxis
    ends = [x for trace in figure.data for x in _values(trace.x)]
    names: list[str] = []
    if axis.type == "category" or any(isinstance(x, str) for x in ends):
        names = list(dict.fromkeys(str(x) for x in axis.categoryarray or ends if x is not None))
    if axis.range is None:
        drawn = [x for x in ends if _drawn(x)]
        axis.range = [-10 * _ROOM, len(names) - 1 + 10 * _ROOM] if names else _padded(drawn)
    return names


def _y_range(figure: go.Figure) -> tuple[float, float]:
    """Lower and upper end of the axis, which is fixed to them where it was not."""
    axis = figure.layout.yaxis
    if axis.range is None:
        heights = [height for trace in figure.data for height in _with_errors(trace)]
        shapes = (shape for shape in figure.layout.shapes if shape.yref in (None, "y"))
        heights += [y for shape in shapes for y in (shape.y0, shape.y1) if _drawn(y)]
        axis.range = _padded([*heights, *([0.0] if axis.rangemode == "tozero" else [])])
    low, high = axis.range
    return float(low), float(high)


def _with_errors(trace: Any) -> list[float]:
    heights = _values(trace.y)
    errors = _values(trace.error_y.array) if "error_y" in trace and trace.error_y.visible else []
    errors += [0.0] * (len(heights) - len(errors))
    both = [(y, error if _drawn(error) else 0.0) for y, error in zip(heights, errors, strict=False) if _drawn(y)]
    return [y + sign * error for y, error in both for sign in (-1, 1)]


def _padded(found: Sequence[float]) -> list[float]:
    low, high = min(found), max(found)
    room = _ROOM * (high - low) or 0.5
    return [low - room, high + room]
