"""The rows of one cell: their scores, ranks and percentiles page by page, and ticks."""

from contextlib import suppress
from zlib import crc32

import polars as pl
import streamlit as st

from dashboard.charts import palette
from dashboard.pages.rows import row_sets, scored
from dashboard.pages.rows.row_sets import Kept
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection, tools
from engine.records.errors import InputError

PAGE_ROWS = 20
VALUES = {"Percentile": "percentile", "Rank": "rank", "Score": "score"}
TICKED = "rows"  # URL key of the ticked rows, as text
TABLE = "rows-table"
IN_MASK = "In the mask"


def chosen(found: Scored) -> tuple[int, str]:
    first, second, _ = st.columns([1, 1, 2])
    block = selection.choose("Block", found.blocks, "block", place=first)
    projection = selection.choose("Projection", found.projections, "projection", place=second)
    return block, projection


def ticked_text() -> str:
    return str(st.session_state.get(TICKED) or st.query_params.get(TICKED, ""))


def show(found: Scored, block: int, projection: str, mask: Kept | None = None) -> None:
    """The table of one page of the cell's rows: checkboxes tick them.
    mask: that of the map, which its rows are marked by; None where the map shows none."""
    frame = scored.cell_rows(found, block, projection)
    layout.section(f"Rows of block {block}, {layout.plain(projection)}")
    if frame.is_empty():
        st.info("This block has no such projection; choose another cell.")
        return
    if mask is not None:
        frame = frame.with_columns(pl.col("row_id").is_in(pl.Series(mask.rows).implode()).alias(IN_MASK))
    columns = st.columns(3)
    shown = selection.switch("Values", tuple(VALUES), "row_values", default="Percentile", place=columns[0])
    sort_by = selection.choose(
        "Sort by", ["row", *found.selectors], "row_sort", place=columns[1],
        title=lambda name: "Row number" if name == "row" else palette.title(name),
    )  # fmt: skip
    first = selection.switch("First", ("Lowest", "Highest"), "row_first", default="Lowest", place=columns[2])
    column = "row" if sort_by == "row" else f"{sort_by} rank"
    ordered = frame.sort(column, descending=first == "Highest")
    part = selection.page_of(ordered, PAGE_ROWS, "rows_page")[1] if ordered.height > PAGE_ROWS else ordered
    _table(found, part, VALUES[shown], mask)
    label = f"Download all {frame.height:,} rows of this cell (CSV)"
    tools.download_csv(label, frame, f"rows-block{block}-{tools.file_name(projection)}.csv")


def _table(found: Scored, part: pl.DataFrame, value: str, mask: Kept | None) -> None:
    """One page of rows; its checkboxes are the ticks, kept in the text that the link carries."""
    wide = part.select(
        pl.col("row").alias("Row"),
        pl.col("row_id").alias("Row id"),
        *([] if mask is None else [IN_MASK]),
        *(pl.col(f"{name} {value}").alias(palette.title(name)) for name in found.selectors),
    )
    ids: list[int] = part["row_id"].to_list()
    key = f"{TABLE}-{crc32(part['row_id'].to_numpy().tobytes())}"  # of this page: places mean other rows on another
    ticked: set[int] | None = None
    with suppress(InputError):  # the box of row ids says what is wrong with it, and what is typed there stays
        ticked = set(row_sets.parse(ticked_text(), found.n_rows).tolist())
        boxes = [place for place, row in enumerate(ids) if row in ticked]
        now = st.session_state.get(key)
        if sorted(now["selection"]["rows"] if now else []) != boxes:  # before the table is made
            st.session_state[key] = {"selection": {"rows": boxes, "columns": [], "cells": []}}

    def keep() -> None:
        chosen = st.session_state[key]["selection"]
        if ticked is not None:
            st.session_state[TICKED] = row_sets.write((ticked - set(ids)) | {ids[place] for place in chosen["rows"]})

    form = {"percentile": "%.1f", "rank": "%d", "score": "%.4g"}[value]
    numbers = {palette.title(name): st.column_config.NumberColumn(format=form) for name in found.selectors}
    st.dataframe(
        wide, hide_index=True, height=38 + 35 * part.height, key=key, on_select=keep, column_config=numbers,
        selection_mode="multi-row", alt="Rows of the chosen cell: their checkboxes tick them",
    )  # fmt: skip
    inside = "" if mask is None else f" {IN_MASK}: does {mask.name} remove it?"
    st.caption(
        "Percentile 0 and rank 0: the row of the whole model that LeRF removes first; percentile 100: the one it "
        f"removes last. Of Random, the first seed.{inside}"
    )
