"""Any table of any results folder: measured, shipped or published, with the registry's title, units and meanings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import streamlit as st

import precomputed
from dashboard.pages.runs.catalogue import Run
from dashboard.show import described, layout, selection
from dashboard.state import results, shipped
from engine.records.errors import InputError
from engine.results.folders import table_names
from engine.results.tables import TABLES, command


def folders(found: Sequence[Run]) -> dict[str, Path]:
    """Where tables can be looked at, by name: the runs, the shipped model, the models of the paper."""
    kept = {run.name: run.folder for run in found if results.shown(run.folder) == str(run.folder)}
    paper = sorted(path.parent for path in precomputed.paper_runs_dir().glob("*/manifest.json"))
    return kept | shipped.folders() | {f"Paper: {one.name}": one for one in paper}


def title(stem: str) -> str:
    """What a table holds; the stem alone where the registry does not know it."""
    return f"{stem}: {TABLES.get(stem).title}" if stem in TABLES else stem


def form(found: Sequence[Run]) -> tuple[pl.DataFrame, str, list[str]]:
    """The choice and the table. returns its values, a name for their file, and where they come from.
    Errors: InputError for a folder without tables, and for a table that cannot be read."""
    offered = folders(found)
    left, right = st.columns(2)
    name = selection.choose("Tables of", list(offered), "tables_of", place=left)
    stems = table_names(offered[name])
    if not stems:
        raise InputError(f"{name} holds no tables; run `selector-audit analyze MODEL all --out {offered[name]}`")
    stem = selection.choose("Table", stems, "run_table", title=title, place=right)
    table = results.read_table(offered[name], stem)
    known = f"{TABLES.get(stem).title}. Written by `{command(stem)}`" if stem in TABLES else "Not in the registry"
    st.caption(f"{known}. Lines: {table.frame.height:,}.")
    described.table(table.frame, layout.plain(title(stem)), described.columns_of(stem, table.frame.columns))
    return table.frame, stem, [table.provenance]
