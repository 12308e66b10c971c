"""The paper's tables, a run of one's own beside them, and where the paper disagrees with itself."""

import polars as pl
import streamlit as st

from dashboard.pages.reference import published as paper
from dashboard.show import layout, selection, tables, tools
from engine.studies.compare import paper_models

NOTHING, UNKNOWN = "Nothing", "None of them"
POINTS_AT_ONCE = 10
TABLES, POINTS, RUN = "Tables", "Disagreements", "A run beside"
_PUBLISHED = "Published values, as printed, from the paper's tables and text; points of disagreement: own compilation."
_VIEW = "paper_view"
_MEANS = {
    "log_ratio": "ln(measured / published); empty where a ratio makes no sense",
    "stderr": "standard error of the log ratio, else of the measured value; empty where none is stored",
    "z": "standard errors beyond half a unit of the last printed digit; 0: rounding explains the difference",
    "p_holm": "p of z, adjusted by Holm over all cells of the run with a z",
}


def show() -> None:
    st.caption("Every number stands as the paper printed it; where it contradicts itself, the second tab says so.")
    run = _choose_run()
    frame, name = None, "paper"
    for tab, draw in zip(selection.tabs([TABLES, POINTS, RUN], _VIEW), (_tables, _points, _run), strict=True):
        if tab.open:
            with tab:
                frame, name = draw(run)
    tools.end(frame, name, provenance=[_PUBLISHED])


def _choose_run() -> paper.Beside | None:
    runs, beside = paper.runs(), None
    with st.container(border=True), st.container(horizontal=True), layout.told():
        chosen = selection.choose(
            "Measured values beside them", [NOTHING, *runs], "beside",
            help_text="A finished run; its values appear beside every published cell that it measured.",
        )  # fmt: skip
        beside = paper.beside(runs[chosen]) if chosen != NOTHING else None
        if beside and beside.comparison is None and chosen != paper.SHIPPED:
            stands_for = selection.choose("It is a run of", [UNKNOWN, *paper_models()], "stands_for")
            beside = paper.beside(runs[chosen], stands_for) if stands_for != UNKNOWN else beside
    return beside


def _tables(run: paper.Beside | None) -> tuple[pl.DataFrame, str]:
    name = selection.choose("Table", paper.tables(), "table", title=lambda table: paper.describe(table).title)
    st.caption(layout.plain(paper.caption(name)))
    frame = paper.load_table(name)
    shown = paper.to_read(name)
    height = min(38 + 35 * shown.numbers.height, 460)
    tables.show(shown, height=height, alt=f"Published table: {paper.describe(name).title}")
    if run is not None:
        with layout.told():
            frame = _measured(run, name, frame)
    about = paper.points(paper.KINDS, paper.SEVERITIES, name)
    if about.height:
        with st.expander(f"Where this table disagrees ({about.height})"):
            for point in about.iter_rows(named=True):
                _statement(point)
    return frame, f"paper-{name}"


def _measured(run: paper.Beside, name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Shows the run's values; what is to be downloaded then."""
    if run.comparison is None:
        _no_match(run)
        return frame
    cells = paper.cells_of(run.comparison, name)
    if cells.is_empty():
        st.info(f"The run has no value for this table. It is compared as {run.comparison.model}.")
        return frame
    layout.section("Measured beside published")
    st.caption(
        f"{cells['within'].sum()} of {cells.height} cells lie within half a unit of the last printed digit. "
        f"{paper.in_words(run.comparison, name)} Model: {layout.plain(run.comparison.model)}."
    )
    _cells(cells, "Published and measured values, cell by cell")
    return cells


def _cells(cells: pl.DataFrame, alt: str) -> None:
    helps = {name: st.column_config.Column(help=text) for name, text in _MEANS.items()}
    st.dataframe(cells, hide_index=True, height=min(38 + 35 * cells.height, 460), column_config=helps, alt=alt)


def _no_match(run: paper.Beside) -> None:
    st.info(
        f"{layout.plain(run.model)} is none of the models whose tables the paper printed "
        f"({', '.join(paper_models())}), so none of its values has a printed cell to stand beside. Run one of "
        "these models, for example on the page Runs, and choose it here."
    )


def _points(_run: paper.Beside | None) -> tuple[pl.DataFrame, str]:
    severities = selection.choose_several("How grave", paper.SEVERITIES, "severity")
    kinds = selection.choose_several("What disagrees", list(paper.KINDS), "kind", title=paper.KINDS.__getitem__)
    titles = {"Any table": "Any table"} | {name: paper.describe(name).title for name in paper.tables()}
    table = selection.choose("About", list(titles), "about", title=titles.__getitem__)
    points = paper.points(kinds, severities, None if table == "Any table" else table)
    st.caption(f"{points.height} of {paper.load_table(paper.POINTS).height} points, in our own words.")
    if points.is_empty():
        st.info("No point is left: choose more kinds, more degrees, or any table.")
    pages = {_span(start, points): start for start in range(0, points.height, POINTS_AT_ONCE)}
    shown = list(pages)[:1]  # all of them are a page of thirteen screens
    if len(pages) > 1:
        shown = [selection.switch("Points", list(pages), "points_shown", default=shown[0])]
    for point in (one for page in shown for one in points.slice(pages[page], POINTS_AT_ONCE).iter_rows(named=True)):
        with st.container(border=True):
            _statement(point)
            with st.container(horizontal=True, gap="small"):
                for name in paper.tables_of(point["tables"]):
                    key = f"open-{point['id']}-{name}"
                    st.button(titles[name], key=key, type="tertiary", on_click=open_table, args=(name,))
    return points, "paper-disagreements"


def _span(start: int, points: pl.DataFrame) -> str:
    return f"{start + 1} to {min(start + POINTS_AT_ONCE, points.height)}"


def open_table(name: str) -> None:
    """Shows a published table, or a point of disagreement by its id, in the next run."""
    st.session_state[_VIEW] = TABLES if name in paper.tables() else POINTS
    if name in paper.tables():
        st.session_state["table"] = name
        return
    points = paper.points(paper.KINDS, paper.SEVERITIES)
    place = points["id"].to_list().index(name)
    st.session_state["points_shown"] = _span(place - place % POINTS_AT_ONCE, points)


def _statement(point: dict[str, str]) -> None:
    colour = {"high": "red", "medium": "orange"}.get(point["severity"], "gray")
    st.markdown(
        f"**{point['id']} · {layout.plain(point['topic'])}** :{colour}-badge[{point['severity']}] "
        f":gray-badge[{paper.KINDS[point['kind']]}]  \n{layout.plain(point['statement'])}"
    )


def _run(run: paper.Beside | None) -> tuple[pl.DataFrame | None, str]:
    name = "paper-beside"
    if run is None:
        st.info("Choose a run above; its values are then compared with every published cell that it measured.")
        return None, name
    if run.comparison is None:
        _no_match(run)
        return None, name
    comparison, signs = run.comparison, run.comparison.signs
    st.caption(f"{layout.plain(run.model)} as {layout.plain(comparison.model)}.")
    layout.section("Order of the selectors")
    st.caption("Pairs that the printed digits tell apart, and how many stand in the same order in the run.")
    st.dataframe(comparison.orders, hide_index=True, alt="Pairs of selectors in the published order")
    layout.section("Sign of the gap")
    same = signs["same_sign"].sum() if signs.height else 0
    st.caption(f"PPL MoRF − PPL LeRF has the published sign in {same} of {signs.height} cells.")
    st.dataframe(signs, hide_index=True, alt="Published and measured validity gaps")
    layout.section("Cell by cell")
    st.caption(paper.in_words(comparison))
    _cells(comparison.cells.drop("model"), "Every cell that both have, worst first")
    st.caption("How many cells of each quantity were compared, tested against noise, and not measured here.")
    st.dataframe(paper.counts(comparison), hide_index=True, alt="Cells compared, per quantity")
    return comparison.cells, name
