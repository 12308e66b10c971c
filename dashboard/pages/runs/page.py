"""Runs: what is in the store, start one, bring one in, delete one, look at any table."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import streamlit as st

import precomputed
from dashboard.pages.runs import catalogue as runs, start_tab
from dashboard.show import layout, selection, tables, tools
from dashboard.state import access, results, shipped
from engine.records.errors import InputError
from engine.results.folders import table_names
from engine.results.tables import TABLES, command

HOW_TO_READ = (
    "Each line is a folder that a command wrote; its manifest says which model was measured how, and its checksums say "
    "whether the files are still the same."
)
TITLES = ("Kept", "Start", "Import", "Tables")
FOLDER, ZIP = "A folder on this machine", "A zip file"
WHERE_LIMITED = ("Kept", "Tables")
LIMITED = f"Starting, importing and deleting runs is {access.HOW}."
_DELETE = "runs-delete"  # session state: the run that is asked about


def render() -> None:
    layout.heading("Runs", HOW_TO_READ)
    top = runs.results_dir()
    st.caption(f"Folder: {layout.plain(str(top))}")
    found = runs.listed(top)
    above = st.container()
    titles = WHERE_LIMITED if access.limited() else TITLES
    if access.limited():
        st.caption(LIMITED)
    tabs = st.tabs(titles, key="runs_view", bind="query-params")
    frame: pl.DataFrame | None = None
    name, lines = "runs", list[str]()
    shown = next((place for place, tab in enumerate(tabs) if tab.open), 0)
    if titles[shown] != "Start":  # there they stand where one presses Start
        with above:
            start_tab.under_way()
    with layout.told(), tabs[shown]:
        match titles[shown]:
            case "Kept":
                frame = _kept(found)
            case "Start":
                start_tab.form(top, found)
            case "Import":
                _import(top)
            case "Tables":
                frame, name, lines = _table(found)
    tools.end(frame, name, *lines)


def _kept(found: Sequence[runs.Run]) -> pl.DataFrame | None:
    if not found:
        st.info("No run is kept here yet. Start one, or import a folder that was made elsewhere.")
        if not access.limited():
            with st.container(horizontal=True):
                go, start, bring = st.session_state.update, {"runs_view": "Start"}, {"runs_view": "Import"}
                st.button("Start one", key="empty-start", type="primary", on_click=go, args=(start,))
                st.button("Import a folder", key="empty-import", on_click=go, args=(bring,))
        return None
    lines = [
        (run.name, run.model, len(run.tables), run.measured, run.size_bytes, run.problem or "whole") for run in found
    ]
    table = pl.DataFrame(lines, schema=["run", "model", "tables", "measured", "bytes", "state"], orient="row")
    _sized(table, "Runs with their model, number of tables, date, size and state")
    for run in found:
        if run.problem:
            st.warning(layout.worded(f"{run.name}: {run.problem}"))
    chosen = selection.choose("Run", [run.name for run in found], "kept_run")
    _details(next(run for run in found if run.name == chosen))
    return table


def _sized(table: pl.DataFrame, alt: str) -> None:
    size = st.column_config.NumberColumn("size", format="bytes")
    st.dataframe(table, hide_index=True, alt=alt, column_config={"bytes": size})


def _details(run: runs.Run) -> None:
    with layout.told():
        _sized(runs.files(run), f"Files of {run.name}")
        with st.expander("Provenance: the manifest as it was written"):
            st.json(runs.provenance(run), expanded=1)
    if access.limited():
        return
    if st.session_state.get(_DELETE) != run.name:
        st.button("Delete this run", key="delete", on_click=_ask, args=(run.name,))
        return
    st.warning(
        f"Delete {layout.plain(run.name)}? Its {len(run.files)} files go for good. Cells in the store stay, so the "
        "same command makes the tables again quickly."
    )
    with st.container(horizontal=True):
        st.button("Yes, delete it", key="delete-yes", type="primary", on_click=_delete, args=(run,))
        st.button("Keep it", key="delete-no", on_click=_ask, args=(None,))


def _ask(name: str | None) -> None:
    st.session_state[_DELETE] = name


def _delete(run: runs.Run) -> None:
    _ask(None)
    try:
        left = runs.delete(run.folder, runs.results_dir())
    except (InputError, OSError) as error:
        st.toast(layout.worded(str(error)), duration="long")
        return
    st.session_state.pop("kept_run", None)
    rest = f", but left what is not its own: {', '.join(left)}" if left else ""
    st.toast(layout.plain(f"Deleted {run.name}{rest}."), duration="long")


def _import(top: Path) -> None:
    st.caption(
        "The files that the manifest lists are copied and checked against their checksums; nothing else is read, and "
        "nothing in them is run."
    )
    kind = selection.switch("From", (FOLDER, ZIP), "import_from", default=FOLDER)
    upload, path = None, ""
    if kind == ZIP:
        upload = st.file_uploader("Zip of one results folder", type="zip", key="import_zip")
        st.caption("Larger ones: unpack the zip on this machine and import the folder.")
    else:
        path = st.text_input("Folder", key="import_path", placeholder="/path/to/results").strip()
    wanted = Path(upload.name).stem if upload is not None else Path(path).name if path else ""
    name = st.text_input("Name", key="import_name", placeholder="the name of the folder or the zip").strip()
    if not st.button("Import", key="import", type="primary", disabled=not wanted):
        return
    try:
        name = name or runs.free_name(wanted, top)
        if upload is not None:
            runs.import_zip(upload, top, name)
        else:
            runs.import_folder(results.folder_of(path), top, name)
    except InputError as error:
        layout.problem(error)
        return
    st.success(f"Imported as {layout.plain(name)}. It stands under “Kept”, and under “My results” on the other pages.")


def _title(stem: str) -> str:
    return f"{stem}: {TABLES.get(stem).title}" if stem in TABLES else stem


def _table(found: Sequence[runs.Run]) -> tuple[pl.DataFrame, str, list[str]]:
    """The choice and the table. returns its values, a name for their file, and where they come from.
    Errors: InputError for a folder without tables, and for a table that cannot be read."""
    kept = {run.name: run.folder for run in found if results.shown(run.folder) == str(run.folder)}
    paper = sorted(path.parent for path in precomputed.paper_runs_dir().glob("*/manifest.json"))
    offered = kept | shipped.folders() | {f"Paper: {one.name}": one for one in paper}
    left, right = st.columns(2)
    name = selection.choose("Tables of", list(offered), "tables_of", place=left)
    stems = table_names(offered[name])
    if not stems:
        raise InputError(f"{name} holds no tables; run `selector-audit analyze MODEL all --out {offered[name]}`")
    stem = selection.choose("Table", stems, "run_table", title=_title, place=right)
    table = results.read_table(offered[name], stem)
    known = f"{TABLES.get(stem).title}. Written by `{command(stem)}`" if stem in TABLES else "Not in the registry"
    st.caption(f"{known}. Lines: {table.frame.height:,}.")
    tables.described(table.frame, layout.plain(_title(stem)), tables.columns_of(stem, table.frame.columns))
    return table.frame, stem, [table.provenance]
