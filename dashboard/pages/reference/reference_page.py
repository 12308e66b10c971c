"""Reference: the paper's tables, a run of one's own beside them and where the paper disagrees with itself, what every
number means, and how to use the software, with one search over all."""

import re

import polars as pl
import streamlit as st

from dashboard.pages.reference import documents, published
from dashboard.show import layout, selection, shown_tables as tables, tools
from engine.records.hashing import installed_version
from engine.studies.comparison import paper_models

HOW_TO_READ = "One document at a time; the search reads all of them, the help of every command and the paper's tables."
HITS_AT_ONCE, PASSAGES_AT_ONCE, EXCERPT_LETTERS, READING_PX, HELP_PX = 20, 3, 320, 960, 560
_DOCUMENT, _FIND, _PLACE = "document", "find", "reference-place"
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


def render() -> None:
    layout.heading("Reference", HOW_TO_READ)
    document = selection.switch("Document", documents.TITLES, _DOCUMENT, default=documents.METHODS)
    words = selection.text("Search in all documents", _FIND, placeholder="for example: Wilson, --rates, saturated")
    if words:
        hits: dict[tuple[str, str], list[str]] = {}
        for hit in documents.search(words):
            hits.setdefault((hit.document, hit.name), []).append(hit.text)
        rest = f"; the first {HITS_AT_ONCE} are shown, more words narrow them" if len(hits) > HITS_AT_ONCE else ""
        st.caption(f"In {len(hits):,} places{rest}." if hits else "Nothing has all of these words; fewer find more.")
        for number, ((document, name), texts) in enumerate(list(hits.items())[:HITS_AT_ONCE]):
            with st.container(border=True, gap="xxsmall"):
                title = published.describe(name).title if name in published.tables() else name
                label = " › ".join(layout.plain(one) for one in (document, title) if one)
                st.button(f"**{label}**", key=f"hit-{number}", type="tertiary", on_click=_open, args=(document, name))
                for text in texts[:PASSAGES_AT_ONCE]:
                    st.markdown(_marked(text, words.split()))
    elif document == documents.PAPER:
        _paper()
    else:
        with st.container(width=READING_PX):
            _document(document)
        tools.end(None, "reference", f"Selector Audit {installed_version('selector-audit')}")


def _document(document: str) -> None:
    parts = documents.sections(document)
    titles = [title for title in parts if title]
    st.markdown("**On this page:** " + " · ".join(f"[{title}](#{documents.anchor(title)})" for title in titles))
    for title, text in parts.items():
        if title:
            layout.section(title, documents.anchor(title))
        st.markdown(documents.linked(text))
        if (document, title) == (documents.METHODS, "Tables"):
            columns, alt = tables.columns(), "Every table, what it holds, the command that writes it"
            st.dataframe(tables.registered(), hide_index=True, alt=alt)
            st.dataframe(columns, hide_index=True, alt="Every column of every table with its type, unit and meaning")
            tools.download_csv("Download the list (CSV)", columns, "tables.csv")
        elif (document, title) == (documents.COMMANDS, "Every command"):
            helps = documents.helps()
            st.code(helps[selection.choose("Command", list(helps), "command")], language=None, height=HELP_PX)
    anchor = st.session_state.pop(_PLACE, None)
    if anchor:  # formulas and tables above it are laid out later
        scroll = f"setTimeout(() => document.getElementById({anchor!r})?.scrollIntoView(), ms)"
        st.html(f"<script>for (const ms of [0, 400, 1500, 3000]) {scroll}</script>", unsafe_allow_javascript=True)


def _open(document: str, name: str) -> None:
    st.session_state[_DOCUMENT], st.session_state[_FIND] = document, ""
    if document == documents.PAPER:
        _open_table(name)
    elif name in documents.helps():
        st.session_state["command"], st.session_state[_PLACE] = name, documents.anchor("Every command")
    elif name:
        st.session_state[_PLACE] = documents.anchor(name)


def _marked(text: str, words: list[str]) -> str:
    """The passage around its first word, with all words in bold."""
    pattern = re.compile("(" + "|".join(map(re.escape, words)) + ")", re.IGNORECASE)
    first = pattern.search(text)
    start = max(0, min((first.start() if first else 0) - EXCERPT_LETTERS // 3, len(text) - EXCERPT_LETTERS))
    pieces = pattern.split(text[start : start + EXCERPT_LETTERS])
    bold = "".join(f"**{layout.plain(one)}**" if place % 2 else layout.plain(one) for place, one in enumerate(pieces))
    return f"{'… ' if start else ''}{bold}{' …' if start + EXCERPT_LETTERS < len(text) else ''}"


def _paper() -> None:
    st.caption("Every number stands as the paper printed it; where it contradicts itself, the second tab says so.")
    run = _choose_run()
    frame, name = None, "paper"
    for tab, draw in zip(selection.tabs([TABLES, POINTS, RUN], _VIEW), (_tables, _points, _run), strict=True):
        if tab.open:
            with tab:
                frame, name = draw(run)
    tools.end(frame, name, provenance=[_PUBLISHED])


def _choose_run() -> published.Beside | None:
    runs, beside = published.runs(), None
    with st.container(border=True), st.container(horizontal=True), layout.told():
        chosen = selection.choose(
            "Measured values beside them", [NOTHING, *runs], "beside",
            help_text="A finished run; its values appear beside every published cell that it measured.",
        )  # fmt: skip
        beside = published.beside(runs[chosen]) if chosen != NOTHING else None
        if beside and beside.comparison is None and chosen != published.SHIPPED:
            stands_for = selection.choose("It is a run of", [UNKNOWN, *paper_models()], "stands_for")
            beside = published.beside(runs[chosen], stands_for) if stands_for != UNKNOWN else beside
    return beside


def _tables(run: published.Beside | None) -> tuple[pl.DataFrame, str]:
    name = selection.choose("Table", published.tables(), "table", title=lambda table: published.describe(table).title)
    st.caption(layout.plain(published.caption(name)))
    frame = published.load_table(name)
    shown = published.to_read(name)
    height = min(38 + 35 * shown.numbers.height, 460)
    tables.show(shown, height=height, alt=f"Published table: {published.describe(name).title}")
    if run is not None:
        with layout.told():
            frame = _measured(run, name, frame)
    about = published.points(published.KINDS, published.SEVERITIES, name)
    if about.height:
        with st.expander(f"Where this table disagrees ({about.height})"):
            for point in about.iter_rows(named=True):
                _statement(point)
    return frame, f"paper-{name}"


def _measured(run: published.Beside, name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Shows the run's values; what is to be downloaded then."""
    if run.comparison is None:
        _no_match(run)
        return frame
    cells = published.cells_of(run.comparison, name)
    if cells.is_empty():
        st.info(f"The run has no value for this table. It is compared as {run.comparison.model}.")
        return frame
    layout.section("Measured beside published")
    st.caption(
        f"{cells['within'].sum()} of {cells.height} cells lie within half a unit of the last printed digit. "
        f"{published.in_words(run.comparison, name)} Model: {layout.plain(run.comparison.model)}."
    )
    _cells(cells, "Published and measured values, cell by cell")
    return cells


def _cells(cells: pl.DataFrame, alt: str) -> None:
    helps = {name: st.column_config.Column(help=text) for name, text in _MEANS.items()}
    st.dataframe(cells, hide_index=True, height=min(38 + 35 * cells.height, 460), column_config=helps, alt=alt)


def _no_match(run: published.Beside) -> None:
    st.info(
        f"{layout.plain(run.model)} is none of the models whose tables the paper printed "
        f"({', '.join(paper_models())}), so none of its values has a printed cell to stand beside. Run one of "
        "these models, for example on the page Runs, and choose it here."
    )


def _points(_run: published.Beside | None) -> tuple[pl.DataFrame, str]:
    severities = selection.choose_several("How grave", published.SEVERITIES, "severity")
    kinds = selection.choose_several("What disagrees", list(published.KINDS), "kind", title=published.KINDS.__getitem__)
    titles = {"Any table": "Any table"} | {name: published.describe(name).title for name in published.tables()}
    table = selection.choose("About", list(titles), "about", title=titles.__getitem__)
    points = published.points(kinds, severities, None if table == "Any table" else table)
    st.caption(f"{points.height} of {published.load_table(published.POINTS).height} points, in our own words.")
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
                for name in published.tables_of(point["tables"]):
                    key = f"open-{point['id']}-{name}"
                    st.button(titles[name], key=key, type="tertiary", on_click=_open_table, args=(name,))
    return points, "paper-disagreements"


def _span(start: int, points: pl.DataFrame) -> str:
    return f"{start + 1} to {min(start + POINTS_AT_ONCE, points.height)}"


def _open_table(name: str) -> None:
    """Shows a published table, or a point of disagreement by its id, in the next run."""
    st.session_state[_VIEW] = TABLES if name in published.tables() else POINTS
    if name in published.tables():
        st.session_state["table"] = name
        return
    points = published.points(published.KINDS, published.SEVERITIES)
    row_number = points["id"].to_list().index(name)
    st.session_state["points_shown"] = _span(row_number - row_number % POINTS_AT_ONCE, points)


def _statement(point: dict[str, str]) -> None:
    colour = {"high": "red", "medium": "orange"}.get(point["severity"], "gray")
    st.markdown(
        f"**{point['id']} · {layout.plain(point['topic'])}** :{colour}-badge[{point['severity']}] "
        f":gray-badge[{published.KINDS[point['kind']]}]  \n{layout.plain(point['statement'])}"
    )


def _run(run: published.Beside | None) -> tuple[pl.DataFrame | None, str]:
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
    st.caption(published.in_words(comparison))
    _cells(comparison.cells.drop("model"), "Every cell that both have, worst first")
    st.caption("How many cells of each quantity were compared, tested against noise, and not measured here.")
    st.dataframe(published.counts(comparison), hide_index=True, alt="Cells compared, per quantity")
    return comparison.cells, name
