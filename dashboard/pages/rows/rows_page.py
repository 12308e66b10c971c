"""Rows: where a selector's scores lie, the single rows of a cell, and masks made by hand."""

import os
from contextlib import suppress
from dataclasses import dataclass, replace

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import formats, matrix, palette
from dashboard.charts.findings import row_findings as findings
from dashboard.chat import edits
from dashboard.pages.rows import brush as rows_brush, row_cell as rows_cell, scored
from dashboard.pages.rows.row_cell import Kept
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection, tools
from dashboard.state import access, results, shipped_models as shipped, sources
from dashboard.state.scores import SCORES
from dashboard.state.sources import MINE
from engine.edits.masks import Mask
from engine.records.errors import InputError

MEAN, SHARE, APART = "Mean score", "Removed rows", "Two selectors"
HOW_TO_READ = (
    "Each cell is one weight matrix: a block from top to bottom, a projection from left to right. Click a cell, or "
    "choose it below the figure, to see its single rows; with Several on, drag over some to see what zeroing "
    "them costs; tick rows to try what the model does without them."
)
LINE = "Each cell is one weight matrix of the model. Click it to see its single rows."
_MAP = "rows-map"
_RUN = "rows-run"  # session state: the folder of the last run that was shown
_CLICKED = "rows-clicked"  # session state: the last click that was followed


@dataclass(frozen=True)
class _Map:
    """The heatmap, its values, a file name, the mask that it shows, if it shows one, and what it says."""

    figure: go.Figure
    frame: pl.DataFrame
    name: str
    mask: Kept | None = None
    finding: str = ""


def render() -> None:
    """The page. What asks a model comes last, so that the page is there meanwhile."""
    stage = layout.heading("Rows", LINE)
    bar = layout.bar(stage)
    try:
        with bar:
            scores = _source()
    except InputError as error:
        layout.problem(error)
        return
    with bar:
        brushing = st.toggle("Several", key="brush", bind="query-params", help="A drag over the map chooses its cells.")
        points = tools.clicked(_MAP)
        if brushing:
            rows_brush.follow(scores, points)
        grid = _map(scores)
    with layout.hero(stage):
        tools.show(grid.figure, grid.name, key=_MAP, clickable=True, brush=brushing, finding=grid.finding, hero=True)
    layout.how_to_read(HOW_TO_READ)
    _follow(scores, points if len(points) == 1 or not brushing else [])
    with layout.told():
        if grid.mask is not None:
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(
                    f"**{layout.plain(grid.mask.name)}** removes {grid.mask.rows.size:,} of {scores.n_rows:,} rows; "
                    "choose it below under “Which rows” to zero just these.", width="content",
                )  # fmt: skip
                edits.live_link(scores.folder, scores.load_from, **(grid.mask.spec or {}))
        brushed = rows_brush.show(scores, _ticked(scores))
        block, projection = rows_cell.chosen(scores)
        rows_cell.show(scores, block, projection, grid.mask)
        st.divider()
        rows_cell.masks(scores, grid.mask)
    tools.end(grid.frame, grid.name, provenance=[scores.provenance])
    with layout.told():
        rows_brush.measured(scores, _ticked(scores), brushed)


def _ticked(found: Scored) -> Mask:
    """The ticked rows; none where the box of row ids says what is wrong with it."""
    with suppress(InputError):
        return rows_cell.parse(rows_cell.ticked_text(), found.n_rows)
    return rows_cell.parse("", found.n_rows)


def _source() -> Scored:
    with_scores = [title for title, folder in shipped.folders().items() if (folder / SCORES).is_file()]
    offered = [*(with_scores or shipped.folders()), MINE]
    kind = selection.choose("Results", offered, "source", default=_first(offered[0]), keep=True)
    own = kind == MINE
    scores = scored.read(sources.own_run("`selector-audit score`", scored.find) if own else shipped.folders()[kind])
    if not own and shipped.IDS[kind] in shipped.models():
        return scores
    if st.session_state.get(_RUN, scores.folder) != scores.folder:
        st.session_state["row_model"] = scores.load_from  # another run's model would stay otherwise
    st.session_state[_RUN] = scores.folder
    place = ""
    if not access.limited():
        place = selection.text(
            "Model to load", "row_model", default=scores.load_from,
            help_text="Folder or Hugging Face id of the scored model; loaded when a button asks for it.",
        )  # fmt: skip
    return replace(scores, load_from=place or scores.load_from)


def _first(default: str) -> str:
    """The app's own store where it was started on one that has scores, else the default."""
    with suppress(InputError):
        if results.STORE_VARIABLE in os.environ and scored.find(results.store_results_dir()):
            return MINE
    return default


def _map(found: Scored) -> _Map:
    mask, other = None, ""
    measure = selection.switch("Show", (SHARE, MEAN, APART), "measure", default=SHARE)
    selector = selection.choose("Selector", found.selectors, "row_selector", title=palette.title, keep=True)
    title = palette.title(selector)
    if measure == SHARE:
        shown = selection.switch("Lowest or highest first", ("LeRF", "MoRF"), "row_order", default="LeRF")
        rate = selection.pick("Rows removed", edits.RATES, "row_rate", default=0.3, title=formats.rate)
        spec = {"selector": selector, "order": (order := shown.lower()), "rate": rate}
        frame = scored.mask_shares(found, selector, order, rate)
        heading = f"{title}, {shown} {formats.rate(rate)}"
        end = "lowest" if order == "lerf" else "highest"
        rate_told = formats.rate(rate)
        below = f"share of each matrix's rows that are among the {end} {rate_told} of the model; {rate_told} by chance"
        kind, name = "share", f"mask-{selector}-{order}-{round(rate * 100)}"
        mask = Kept(heading, found.removed(selector, order, rate), spec)
    elif measure == APART:
        rest = [other for other in found.selectors if other != selector] or [selector]
        other = selection.choose("Compared with", rest, "row_other", title=palette.title)
        frame = scored.rank_differences(found, selector, other)
        heading = f"{title} − {palette.title(other)}"
        below = f"mean percentile of each matrix's rows, {title} minus {palette.title(other)}; colours by rank of size"
        kind, name = "difference", f"ranks-{selector}-{other}"
    else:
        frame = scored.mean_scores(found, selector)
        heading = f"{title}: mean score"
        below = "mean score of each matrix's rows; colours by rank"
        kind, name = "score", f"mean-score-{selector}"
    figure = matrix.cells(
        frame, found.blocks, found.projections, heading=heading, below=below, kind=kind,
        outlined=rows_brush.brushed(found),
    )  # fmt: skip
    finding = findings.spread(frame, kind, title, palette.title(other) if other else "")
    return _Map(figure, frame, name, mask, finding)


def _follow(found: Scored, clicked: list[dict[str, object]]) -> None:
    """A click chooses its cell once; afterwards the boxes below decide."""
    clicked_cell = clicked[-1].get("customdata") if clicked else None
    before = st.session_state.get(_CLICKED)
    st.session_state[_CLICKED] = cell = list(clicked_cell[:2]) if isinstance(clicked_cell, list | tuple) else None
    if cell is None or cell == before:
        return
    st.session_state["block"] = found.blocks[int(cell[0])]
    st.session_state["projection"] = found.projections[int(cell[1])]
