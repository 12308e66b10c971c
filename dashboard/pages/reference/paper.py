"""The paper's tables, a run of one's own beside them, and where the paper disagrees with itself."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.pages.reference import published as paper, readable
from dashboard.show import grid, layout, selection, tools

NOTHING, UNKNOWN = "Nothing", "None of them"
POINTS_AT_ONCE = 10
TABLES, POINTS, RUN = "Tables", "Disagreements", "A run beside"
_PUBLISHED = "Published values, as printed, from the paper's tables and text; points of disagreement: own compilation."
_VIEW = "paper_view"


def show() -> None:
    """The document, to the page's end."""
    st.caption("Every number stands as the paper printed it; where it contradicts itself, the second tab says so.")
    found = _choose_run()
    tabs = selection.tabs([TABLES, POINTS, RUN], _VIEW)
    frame: pl.DataFrame | None = None
    name = "paper"
    for tab, show in zip(tabs, (_tables, _points, _run), strict=True):
        if tab.open:
            with tab:
                frame, name = show(found)
    tools.end(frame, name, _PUBLISHED)


def _choose_run() -> paper.Beside | None:
    runs = paper.runs()
    found = None
    with st.container(border=True):
        first, second = st.columns(2)
        with first:
            chosen = selection.choose(
                "Measured values beside them", [NOTHING, *runs], "beside",
                help_text="A finished run; its values appear beside every published cell that it measured.",
            )  # fmt: skip
        if chosen == NOTHING:
            return None
        with layout.told():
            found = paper.beside(runs[chosen])
            if found.comparison is None and chosen != paper.SHIPPED:
                with second:
                    known = [UNKNOWN, *paper.model_names()]
                    stands_for = selection.choose("It is a run of", known, "stands_for")
                if stands_for != UNKNOWN:
                    found = paper.beside(runs[chosen], stands_for)
    return found


def _tables(found: paper.Beside | None) -> tuple[pl.DataFrame, str]:
    name = selection.choose("Table", paper.tables(), "table", title=lambda table: paper.describe(table).title)
    st.caption(layout.plain(paper.caption(name)))
    frame = paper.load_table(name)
    shown = readable.to_read(name)
    height = min(38 + 35 * shown.numbers.height, 460)
    grid.show(shown, height=height, alt=f"Published table: {paper.describe(name).title}")
    if found is not None:
        with layout.told():
            frame = _measured(found, name, frame)
    about = paper.points(paper.KINDS, paper.SEVERITIES, name)
    if about.height:
        with st.expander(f"Where this table disagrees ({about.height})"):
            for point in about.iter_rows(named=True):
                _statement(point)
    return frame, f"paper-{name}"


def _measured(found: paper.Beside, name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Shows the run's values; what is to be downloaded then."""
    if found.comparison is None:
        _no_match(found)
        return frame
    cells = paper.cells_of(found.comparison, name)
    if cells.is_empty():
        st.info(f"The run has no value for this table. It is compared as {found.comparison.model}.")
        return frame
    inside = cells["within"].sum()
    layout.section("Measured beside published")
    st.caption(
        f"{inside} of {cells.height} cells lie within half a unit of the last printed digit. "
        f"{paper.in_words(found.comparison, name)} Model: {layout.plain(found.comparison.model)}."
    )
    st.dataframe(
        cells, hide_index=True, height=min(38 + 35 * len(cells), 460), column_config=_described(),
        alt="Published and measured values, cell by cell",
    )  # fmt: skip
    return cells


def _no_match(found: paper.Beside) -> None:
    st.info(
        f"{layout.plain(found.model)} is none of the models whose tables the paper printed "
        f"({', '.join(paper.model_names())}), so none of its values has a printed cell to stand beside. Run one of "
        "these models, for example on the page Runs, and choose it here."
    )


def _points(_found: paper.Beside | None) -> tuple[pl.DataFrame, str]:
    severities = selection.choose_several("How grave", paper.SEVERITIES, "severity")
    kinds = selection.choose_several("What disagrees", list(paper.KINDS), "kind", title=paper.KINDS.__getitem__)
    anywhere = "Any table"
    table = selection.choose(
        "About", [anywhere, *paper.tables()], "about",
        title=lambda name: name if name == anywhere else paper.describe(name).title,
    )  # fmt: skip
    found = paper.points(kinds, severities, None if table == anywhere else table)
    st.caption(f"{found.height} of {paper.load_table(paper.POINTS).height} points, in our own words.")
    if found.is_empty():
        st.info("No point is left: choose more kinds, more degrees, or any table.")
    for point in _some(found).iter_rows(named=True):
        with st.container(border=True):
            _statement(point)
            with st.container(horizontal=True, gap="small"):
                for name in paper.tables_of(point["tables"]):
                    st.button(
                        paper.describe(name).title, key=f"open-{point['id']}-{name}", type="tertiary",
                        on_click=open_table, args=(name,),
                    )  # fmt: skip
    return found, "paper-disagreements"


def _some(found: pl.DataFrame) -> pl.DataFrame:
    """A handful of points at once: all of them are a page of thirteen screens."""
    if found.height <= POINTS_AT_ONCE:
        return found
    pages = {_span(start, found): start for start in range(0, found.height, POINTS_AT_ONCE)}
    shown = selection.switch("Points", list(pages), "points_shown", default=next(iter(pages)))
    return found.slice(pages[shown], POINTS_AT_ONCE)


def _span(start: int, found: pl.DataFrame) -> str:
    return f"{start + 1} to {min(start + POINTS_AT_ONCE, found.height)}"


def open_table(name: str) -> None:
    """Shows a published table, or a point of disagreement by its id, in the next run."""
    st.session_state[_VIEW] = TABLES if name in paper.tables() else POINTS
    if name in paper.tables():
        st.session_state["table"] = name
        return
    found = paper.points(paper.KINDS, paper.SEVERITIES)
    place = found["id"].to_list().index(name)
    st.session_state["points_shown"] = _span(place - place % POINTS_AT_ONCE, found)


def _statement(point: dict[str, str]) -> None:
    colour = {"high": "red", "medium": "orange"}.get(point["severity"], "gray")
    st.markdown(
        f"**{point['id']} · {layout.plain(point['topic'])}** :{colour}-badge[{point['severity']}] "
        f":gray-badge[{paper.KINDS[point['kind']]}]  \n{layout.plain(point['statement'])}"
    )


def _run(found: paper.Beside | None) -> tuple[pl.DataFrame | None, str]:
    name = "paper-beside"
    if found is None:
        st.info("Choose a run above; its values are then compared with every published cell that it measured.")
        return None, name
    if found.comparison is None:
        _no_match(found)
        return None, name
    comparison = found.comparison
    st.caption(f"{layout.plain(found.model)} as {layout.plain(comparison.model)}.")
    layout.section("Order of the selectors")
    st.caption("Pairs that the printed digits tell apart, and how many stand in the same order in the run.")
    st.dataframe(comparison.orders, hide_index=True, alt="Pairs of selectors in the published order")
    layout.section("Sign of the gap")
    same = comparison.signs["same_sign"].sum() if comparison.signs.height else 0
    st.caption(f"PPL MoRF − PPL LeRF has the published sign in {same} of {comparison.signs.height} cells.")
    st.dataframe(comparison.signs, hide_index=True, alt="Published and measured validity gaps")
    layout.section("Cell by cell")
    st.caption(paper.in_words(comparison))
    st.dataframe(
        comparison.cells.drop("model"), hide_index=True, height=320, column_config=_described(),
        alt="Every cell that both have, worst first",
    )  # fmt: skip
    st.caption("How many cells of each quantity were compared, tested against noise, and not measured here.")
    st.dataframe(paper.counts(comparison), hide_index=True, alt="Cells compared, per quantity")
    return comparison.cells, name


def _described() -> dict[str, Any]:
    """What the columns of a comparison mean, as help."""
    helps = {
        "log_ratio": "ln(measured / published); empty where a ratio makes no sense",
        "stderr": "standard error of the log ratio, else of the measured value; empty where none is stored",
        "z": "standard errors beyond half a unit of the last printed digit; 0: rounding explains the difference",
        "p_holm": "p of z, adjusted by Holm over all cells of the run with a z",
    }
    return {name: st.column_config.Column(help=text) for name, text in helps.items()}
