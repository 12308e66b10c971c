"""Rows: where a selector's scores lie, the single rows of a cell, and masks made by hand."""

from __future__ import annotations

import os
from dataclasses import replace

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import formats, palette, rows
from dashboard.chat import edits
from dashboard.pages.rows import cell as rows_cell, mask as rows_mask, scored
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection, tools
from dashboard.state import results, shipped, sources
from dashboard.state.sources import MINE, SHIPPED
from engine.records.errors import InputError
from engine.records.model_names import model_name

MEAN, SHARE, APART = "Mean score", "Share in the mask", "Two selectors"
HOW_TO_READ = (
    "Each cell is one weight matrix: a block from top to bottom, a projection from left to right. Click a cell, or "
    "choose it below the figure, to see its single rows; tick rows to try what the model does without them."
)
_RUN = "rows-run"  # session state: the folder of the last run that was shown
_CLICKED = "rows-clicked"  # session state: the last click that was followed


def render() -> None:
    """The page."""
    layout.heading("Rows", HOW_TO_READ)
    try:
        found = _source()
    except InputError as error:
        layout.problem(error)
        return
    figure, frame, alt, name = _map(found)
    clicked = tools.show(figure, name, alt, key="rows-map", clickable=True)
    _follow(found, clicked)
    with layout.told():
        block, projection = rows_cell.chosen(found)
        rows_cell.show(found, block, projection)
        st.divider()
        rows_mask.show(found)
    tools.end(frame, name, found.provenance)


def _source() -> Scored:
    with st.container(border=True):
        first, second = st.columns([1, 2])
        kind = selection.choose("Results", (SHIPPED, MINE), "source", default=_first(), keep=True, place=first)
        if kind == SHIPPED:
            return scored.read(shipped.demo_results_dir())
        with second:
            found = scored.read(sources.own_run("`selector-audit score`", scored.find))
            if st.session_state.get(_RUN, found.folder) != found.folder:
                st.session_state["row_model"] = found.load_from  # another run's model would stay otherwise
            st.session_state[_RUN] = found.folder
            place = selection.text(
                "Model to load", "row_model", default=found.load_from,
                help_text="Folder or Hugging Face id of the model that was scored; loaded when a button asks for it.",
            )  # fmt: skip
        return replace(found, load_from=place or found.load_from)


def _first() -> str:
    """The app's own store where it was started on one that has scores."""
    if results.STORE_VARIABLE in os.environ:
        try:
            return MINE if scored.find(results.store_results_dir()) else SHIPPED
        except InputError:
            pass
    return SHIPPED


def _map(found: Scored) -> tuple[go.Figure, pl.DataFrame, str, str]:
    """Controls of the heatmap -> figure, its values, its alt text, a file name."""
    measure = selection.switch("Show", (MEAN, SHARE, APART), "measure", default=MEAN)
    columns = st.columns(3)
    with columns[0]:
        selector = selection.choose("Selector", found.selectors, "row_selector", title=palette.title, keep=True)
    title = palette.title(selector)
    if measure == SHARE:
        order = selection.switch("Order", ("LeRF", "MoRF"), "row_order", default="LeRF", place=columns[1])
        with columns[2]:
            rate = selection.pick("Rows removed", edits.RATES, "row_rate", default=0.3, title=formats.rate)
        frame = scored.mask_shares(found, selector, order.lower(), rate)
        heading, below = f"{title}, {order} {formats.rate(rate)}", "share of each matrix's rows that go"
        kind, name = "share", f"mask-{selector}-{order.lower()}-{round(rate * 100)}"
    elif measure == APART:
        with columns[1]:
            rest = [other for other in found.selectors if other != selector] or [selector]
            other = selection.choose("Compared with", rest, "row_other", title=palette.title)
        frame = scored.rank_differences(found, selector, other)
        heading = f"{title} − {palette.title(other)}"
        below = "mean percentile of each matrix's rows, in points"
        kind, name = "difference", f"ranks-{selector}-{other}"
    else:
        frame = scored.mean_scores(found, selector)
        heading, below = f"{title}: mean score", "the scale is the selector's own"
        kind, name = "score", f"mean-score-{selector}"
    figure = rows.cells(frame, found.blocks, found.projections, heading=heading, below=below, kind=kind)
    top = frame.sort("value", descending=True).row(0, named=True)
    low = frame.sort("value").row(0, named=True)
    alt = (
        f"{heading} ({below}) for every block and projection of {model_name(found.model)}: highest in block "
        f"{top['block']} {top['projection']} ({top['value']:.3g}), lowest in block {low['block']} "
        f"{low['projection']} ({low['value']:.3g})."
    )
    return figure, frame, alt, name


def _follow(found: Scored, clicked: list[dict[str, object]]) -> None:
    """A click chooses its cell once; afterwards the boxes below decide."""
    place = clicked[-1].get("customdata") if clicked else None
    before = st.session_state.get(_CLICKED)
    st.session_state[_CLICKED] = cell = list(place[:2]) if isinstance(place, list | tuple) else None
    if cell is None or cell == before:
        return
    st.session_state["block"] = found.blocks[int(cell[0])]
    st.session_state["projection"] = found.projections[int(cell[1])]
