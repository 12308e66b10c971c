"""What a figure draws, read back from it, to be compared with its table: marks with both ends of their intervals."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import pytest

from dashboard.charts.sortable import Sortable

_NUMBER = re.compile(r"([-−+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+))(?:(?:×10|e\+?)([⁻⁰¹²³⁴⁵⁶⁷⁸⁹\d-]+)|([kMB])\b)?")
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_THOUSANDS = {"": 0, "k": 3, "M": 6, "B": 9}
_OF = re.compile(r"(\d+) of (\d+)")
_ROWS = 100  # of a table


@dataclass(frozen=True)
class Mark:
    """A mark of a trace that has error bars. place: where it stands on the other axis; low, high: None without a bar;
    hover: as a browser shows it."""

    trace: str
    axis: str
    place: float | str
    value: float
    low: float | None
    high: float | None
    hover: str


def marks(figure: go.Figure) -> list[Mark]:
    """Every mark of every trace with error bars that can be seen, in the order of the figure."""
    return [
        mark for trace in figure.data for axis in "xy" if f"error_{axis}" in trace for mark in _of_trace(trace, axis)
    ]


def _of_trace(trace: Any, axis: str) -> Iterator[Mark]:
    bars, values = trace[f"error_{axis}"], list(trace[axis])
    if bars.array is None:
        return
    above, below = list(bars.array), list(bars.array if bars.arrayminus is None else bars.arrayminus)
    assert bars.type == "data"
    assert bars.symmetric is not True
    seen = bars.visible is not False and bars.thickness > 0 and bars.width > 0
    assert len(above) == len(below) == len(values) or not seen
    for i, (value, place) in enumerate(zip(values, trace["y" if axis == "x" else "x"], strict=True)):
        if value is not None:
            long = seen and (above[i] != 0 or below[i] != 0)
            ends = (value - below[i], value + above[i]) if long else (None, None)
            yield Mark(trace.name or "", axis, place, value, *ends, _hover(trace, i))


def _hover(trace: Any, index: int) -> str:
    text = str(trace.hovertemplate or "")
    if trace.customdata is not None:
        parts = trace.customdata[index]
        parts = [parts] if isinstance(parts, str) else list(parts)
        text = text.replace("%{customdata}", parts[0])
        for place, part in enumerate(parts):
            text = text.replace(f"%{{customdata[{place}]}}", part)
    return text


def says(text: str, number: float) -> bool:
    """Does a text name a number, rounded as the text rounds it? As a percentage too, where the text has one: the ends
    of `75.2% [71.2, 78.8]` are percentages."""
    for written, power, thousands in _NUMBER.findall(text):
        digits = written.replace(",", "").replace("−", "-")
        scale = 10.0 ** (int(power.translate(_RAISED) or 0) + _THOUSANDS[thousands])
        rounding = (0.5 * 10.0 ** -len(digits.partition(".")[2]) + 1e-9) * scale
        units = (1, 100) if "%" in text else (1,)
        if any(abs(float(digits) * scale - unit * number) <= rounding for unit in units):
            return True
    return False


def sorted_by_others(table: Sortable) -> list[str]:
    """The columns whose numbers, by which they are sorted, are not those that stand in their cells. Words have one
    number each; what is null or beyond a float64 has no digits to compare."""
    found = []
    for name in table.texts.columns:
        numbers: dict[str, float] = {}
        cells = zip(table.texts[name].head(_ROWS), table.numbers[name].head(_ROWS), strict=True)
        for text, number in ((str(text), number) for text, number in cells if text is not None):
            if number is None or isinstance(number, str) or not math.isfinite(number):
                continue
            share, own = _OF.search(text), re.split(r"[(\[]", text.rpartition("→")[2])[0]  # no interval, nothing before
            same = says(own, number) or (share and says(f"{int(share[1]) / int(share[2]):.9f}", number))
            words = not any(letter.isdigit() for letter in text) and numbers.setdefault(text, number) == number
            if not (same or words):
                found.append(f"{name}: {text!r} is sorted as {number}")
    return found


def check(figure: go.Figure, rows: Sequence[Sequence[Any]], *, hover: Sequence[str] = ("value", "low", "high")) -> None:
    """The marks with error bars are exactly those of `rows`: (trace, axis, place, value, low, high).

    low, high: None for a mark without a bar. place: a whole number for the place of a list, from which several marks
    are moved apart by less than half a place. hover: which of the three numbers the hover names.
    """
    drawn = sorted(marks(figure), key=_order)
    wanted = sorted((Mark(*row, hover="") for row in rows), key=_order)
    assert [(mark.trace, mark.axis) for mark in drawn] == [(mark.trace, mark.axis) for mark in wanted]
    for mark, want in zip(drawn, wanted, strict=True):
        what = (mark.trace, mark.axis, want.place)
        if isinstance(want.place, int):
            assert isinstance(mark.place, int | float)
            assert abs(mark.place - want.place) < 0.5, what
        else:
            assert mark.place == (want.place if isinstance(want.place, str) else pytest.approx(want.place)), what
        assert mark.value == pytest.approx(want.value), what
        assert (mark.low, mark.high) == (pytest.approx(want.low), pytest.approx(want.high)), what
        for name in hover:
            number = getattr(want, name)
            assert number is None or says(mark.hover, number), (*what, name, number, mark.hover)


def levels(figure: go.Figure) -> list[tuple[str, float]]:
    """The lines across a plot to compare marks with: (axis, number), sorted."""
    across = [shape for shape in figure.layout.shapes if "domain" in f"{shape.xref} {shape.yref}"]
    return sorted(("x", line.x0) if "domain" in str(line.yref) else ("y", line.y0) for line in across)


def _order(mark: Mark) -> tuple[str, str, float]:
    return mark.trace, mark.axis, mark.value
