"""A clicked point of a curve: its mask, on the map of Rows and in Live edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import plotly.graph_objects as go
import streamlit as st

from dashboard.charts import formats, palette, series
from dashboard.chat import handed
from dashboard.pages.rows import scored
from dashboard.show import layout, menu, tools
from dashboard.state.sources import Source
from engine.records.errors import InputError

OFFERED = "Rows and Live edit offer 0.25, 0.5, 1, 2, 3% and 5% to 90% in steps of 5%."


class Point(NamedTuple):
    """A mask: the rows that an order removes at a rate."""

    selector: str
    order: str
    rate: float


def key_of(order: str) -> str:
    """The key of the figure of one order."""
    return f"curves-{order}"


def clickable(picked: Source) -> bool:
    """Are there scores, so that a point has a mask?"""
    return not picked.published and (picked.folder / scored.SCORES).is_file()


def clicked(figures: Mapping[str, go.Figure]) -> list[Point]:
    """The points of these figures, by order, that were clicked before this run."""
    found = []
    for order, figure in figures.items():
        for point in tools.clicked(key_of(order))[-1:]:
            mask = _mask(figure, order, point)
            if mask is not None:
                found.append(mask)
    return found


def _mask(figure: go.Figure, order: str, point: Mapping[str, Any]) -> Point | None:
    number, place = point.get("curve_number"), point.get("point_index")
    if not isinstance(number, int) or not isinstance(place, int) or not 0 <= number < len(figure.data):
        return None
    trace = figure.data[number]
    if not trace.legendgroup or trace.showlegend is False or trace.x is None or not 0 <= place < len(trace.x):
        return None
    return Point(trace.legendgroup, order, float(trace.x[place]))


def show(picked: Source, points: list[Point], *, zeroed: bool) -> None:
    """Links for each of them. zeroed: were the rows zeroed, as Live edit does?"""
    if not points:
        return
    try:
        found = scored.read(picked.folder)
    except InputError as error:
        layout.problem(error)
        return
    for point in points:
        seed = ", its first seed" if point.selector == "random" else ""
        title = f"{palette.title(point.selector)}{seed}, {series.ORDER_TITLES[point.order]} {formats.rate(point.rate)}"
        rate = handed.rate_of(point.rate)
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            st.markdown(f"**{layout.plain(title)}**", width="content")
            if point.selector not in found.selectors:
                st.caption("This folder holds no scores of this selector.")
            elif rate is None:
                st.caption("Nothing is removed here." if point.rate == 0 else OFFERED)
            else:
                menu.link(
                    handed.TO_ROWS, "rows", handed.to_rows(point.selector, point.order, rate),
                    icon=":material/grid_on:",
                )  # fmt: skip
                if zeroed:
                    handed.live_link(found.folder, found.load_from, point.selector, point.order, rate)
