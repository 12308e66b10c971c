"""Refusal edits of one's own model: the measured cells of the grid that a refusal run wrote."""

from pathlib import Path

import polars as pl
import streamlit as st

from dashboard.charts.refusal_values import percent
from dashboard.chat.edits import Edit, cell_name
from dashboard.pages.live import offer
from dashboard.show import layout, selection
from dashboard.state import results
from dashboard.state.results import POINTS, REFUSAL_SWEEP
from engine.records.errors import InputError

NO_EDIT = Edit("refusal", "")
HELP = "What `selector-audit refusal run MODEL --pairs FILE --out FOLDER` wrote for this model, on its own prompts."


def settings(model_id: str) -> Edit:
    """The cell that is chosen; `NO_EDIT`, and a line that says why, where the folder holds none, and an offer of the
    run where no folder is given."""
    text = selection.text("Folder of its refusal run", "edit_run", placeholder="/path/to/results", help_text=HELP)
    if not text:
        offer.refusal_run(model_id)
        return NO_EDIT
    try:
        folder = results.folder_of(text)
        grid = results.read_table(folder, REFUSAL_SWEEP).frame.drop_nulls(["malign", "benign"])
        edited = grid.filter(pl.col("k") > 0)
        if edited.is_empty():
            raise InputError(f"no cell of the grid in {folder} wrote replies; run `refusal run` with a wider grid")
    except InputError as error:
        layout.problem(error)
        return NO_EDIT
    return _cell(folder, grid, edited)


def _cell(folder: Path, grid: pl.DataFrame, edited: pl.DataFrame) -> Edit:
    columns = st.columns(3)
    domain = selection.choose_domain(edited, "run_domain", place=columns[0])
    of_domain = edited.filter(domain=domain)
    selector = selection.choose_selector(of_domain, "run_selector", place=columns[1])
    cells = {
        cell_name(row["lambda"], row["k"]): row
        for row in of_domain.filter(selector=selector)
        .sort("feasible", "malign", descending=True, maintain_order=True)
        .iter_rows(named=True)
    }
    first = _point(folder, selector, domain)
    default = first if first in cells else next(iter(cells))
    chosen = selection.choose("Measured cell", list(cells), "run_cell", default=default, place=columns[2])
    row = cells[chosen]
    before = grid.filter(pl.col("k") == 0, domain=domain, selector=selector)
    was = f", without it {percent(before['malign'][0])} and {percent(before['benign'][0])}" if before.height else ""
    st.caption(
        f"On this run's calibration pairs the edit refuses {percent(row['malign'])} of the risk prompts and "
        f"{percent(row['benign'])} of the base prompts{was}."
    )
    return Edit("refusal", selector, domain=domain, lam=row["lambda"], k=row["k"], run=str(folder))


def restore(edit: Edit) -> None:
    state = st.session_state
    state["edit_run"], state["run_domain"], state["run_selector"] = edit.run, edit.domain, edit.selector
    state["run_cell"] = cell_name(edit.lam, edit.k)


def _point(folder: Path, selector: str, domain: str) -> str:
    if not (folder / f"{POINTS}.parquet").is_file():
        return ""
    found = results.read_table(folder, POINTS).frame.filter(selector=selector, domain=domain).drop_nulls("lambda")
    return cell_name(found["lambda"][0], found["k"][0]) if found.height else ""
