"""The rows of one cell: their scores, ranks and percentiles page by page, and ticks; sets of rows made by hand, as
text in a link and as a file, and what they cost."""

import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import streamlit as st

from dashboard.charts import palette
from dashboard.chat import answers
from dashboard.pages.rows import scored
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection, tools
from dashboard.state import shipped_models as shipped
from engine.edits.contrasts import HAND_MADE, UNTOLD, mask_bytes, read_mask, spec_of
from engine.edits.masks import Mask
from engine.records.errors import InputError
from engine.records.hashing import Json

PAGE_ROWS = 20
VALUES = {"Percentile": "percentile", "Rank": "rank", "Score": "score"}
TICKED = "rows"  # URL key of the ticked rows, as text
TABLE = "rows-table"
IN_MASK = "In the mask"
LENGTHS = (20, 40, 80, 160)
TICKED_ROWS = "The ticked rows"
_RANGE = re.compile(r"(\d{1,12})(?:\s*[-–]\s*(\d{1,12}))?")


@dataclass(frozen=True)
class Kept:
    """A named mask. spec: how its file says that its rows were chosen, None for ticked ones."""

    name: str
    rows: Mask
    spec: Json | None = None


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
    page_rows = selection.page_of(ordered, PAGE_ROWS, "rows_page")[1] if ordered.height > PAGE_ROWS else ordered
    _table(found, page_rows, VALUES[shown], mask)
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
        ticked = set(parse(ticked_text(), found.n_rows).tolist())
        boxes = [place for place, row in enumerate(ids) if row in ticked]
        now = st.session_state.get(key)
        if sorted(now["selection"]["rows"] if now else []) != boxes:  # before the table is made
            st.session_state[key] = {"selection": {"rows": boxes, "columns": [], "cells": []}}

    def keep() -> None:
        chosen = st.session_state[key]["selection"]
        if ticked is not None:
            st.session_state[TICKED] = write((ticked - set(ids)) | {ids[place] for place in chosen["rows"]})

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


def masks(found: Scored, of_map: Kept | None = None) -> None:
    """The part of the page below the rows. of_map: the mask that the map shows, which can be tried as well."""
    layout.section("Without the ticked rows")
    text = selection.text(
        "Row ids to zero", TICKED, placeholder="3, 8-10",
        help_text="The ticked rows, as ids and ranges; they can be typed here as well, and are part of the link.",
    )  # fmt: skip
    try:
        rows = parse(text, found.n_rows)
    except InputError as error:
        layout.problem(error)
        return
    cells = found.rows[rows.tolist()].select("block", "projection").n_unique()
    count = f"{rows.size:,} row{'s' if rows.size != 1 else ''} of {found.n_rows:,} ticked"
    st.caption(f"{count}, in {cells} matri{'ces' if cells != 1 else 'x'}." if rows.size else "No row is ticked.")
    every = [Kept(TICKED_ROWS, rows)]
    given = st.file_uploader("Open a mask file", type="safetensors", key="mask-file")
    if given is not None:
        with layout.told():
            every.append(load(given.getvalue(), given.name, found))
    if of_map is not None:
        every.append(Kept(f"Of the map: {of_map.name}", of_map.rows, of_map.spec))
    _try(found, {mask.name: mask for mask in every})


def _try(found: Scored, offered: dict[str, Kept]) -> None:
    examples = shipped.examples(found.load_from)
    if "rows_prompt" not in st.session_state and "rows_prompt" not in st.query_params and examples:
        st.session_state["rows_prompt"] = examples[0].prompt

    def use() -> None:
        picked = st.session_state.get("rows-example")
        if picked:
            st.session_state["rows_prompt"] = picked

    left, right = st.columns([3, 1])
    with left:
        st.selectbox(
            "Example prompts", [example.prompt for example in examples], index=None, key="rows-example",
            on_change=use, placeholder="choose one, or write your own below",
        )  # fmt: skip
        prompt = selection.prompt("Prompt", "rows_prompt", 2000)
    with right:
        length = selection.pick("Reply, tokens at most", LENGTHS, "rows_length", default=40)
        which = st.selectbox("Which rows", list(offered), key="rows-which") if len(offered) > 1 else TICKED_ROWS
    mask = offered[which]
    request = None
    if mask.rows.size:
        ids = write(mask.rows)
        ids = ids if len(ids) <= 80 else f"{ids[:80].rpartition(',')[0]}, …"
        label = f"Rows {ids}" if which == TICKED_ROWS else which
        weights = found.model.get("weights_hash")
        request = answers.Request(found.load_from, label, lambda *_: mask.rows, prompt, length, weights)
        st.download_button(
            "Download as a mask file", export(mask, found.model), file_name=file_name(mask.name),
            mime="application/octet-stream", key="mask-save", on_click="ignore",
        )  # fmt: skip
    answers.trial("rows-zero", "Zero them and measure", request)


def parse(text: str, n_rows: int) -> Mask:
    """`3, 8-10` -> ascending row ids. `InputError` for what is no id or range of this model's rows."""
    chosen: set[int] = set()
    for part in re.split(r"[,\s]+", re.sub(r"\s*[-–]\s*", "-", text.strip())):
        if not part:
            continue
        match = _RANGE.fullmatch(part)
        if match is None:
            raise InputError(f"row ids are whole numbers and ranges such as 3, 8-10; got {part!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= n_rows or first > last:
            raise InputError(f"row ids of this model go from 0 to {n_rows - 1}, got {part}")
        chosen.update(range(first, last + 1))
    return np.array(sorted(chosen), dtype=np.int64)


def write(rows: Iterable[int]) -> str:
    """Row ids -> `3, 8-10`, as short as it gets."""
    ordered = enumerate(sorted(set(map(int, rows))))
    runs = [[row for _, row in run] for _, run in groupby(ordered, lambda one: one[1] - one[0])]  # of neighbours
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def file_name(name: str) -> str:
    """A name for the file of a mask, of characters that every system takes."""
    return (re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "mask") + ".safetensors"


def export(kept: Kept, model: dict[str, Any]) -> bytes:
    """A mask file, as `selector-audit mask` writes one; its manifest says how the rows were chosen, by hand or not."""
    spec = {"kind": HAND_MADE, "name": kept.name} if kept.spec is None else kept.spec
    return mask_bytes(kept.rows, model, spec)


def load(content: bytes, name: str, found: Scored) -> Kept:
    """The mask of an uploaded file. `InputError` for another file, other weights, or rows of another model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mask.safetensors"
        path.write_bytes(content)
        try:
            rows, manifest = read_mask(path, found.n_rows, found.model.get("weights_hash"))
        except InputError as error:
            raise InputError(str(error).replace(str(path), name)) from None
    spec = spec_of(manifest)
    return Kept(name, rows, spec if {"kind", "order", "lambda"} & spec.keys() else {"kind": HAND_MADE, "made": UNTOLD})
