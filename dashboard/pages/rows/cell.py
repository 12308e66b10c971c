"""The rows of one cell: their scores, ranks and percentiles page by page, ticks, and where they are active."""

from __future__ import annotations

import html

import polars as pl
import streamlit as st

from dashboard.charts import palette
from dashboard.chat import measure, trial
from dashboard.pages.rows import row_sets, scored
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection, tools
from engine.records.errors import InputError

PAGE_ROWS = 20
VALUES = {"Percentile": "percentile", "Rank": "rank", "Score": "score"}
TICKED = "rows"  # URL key of the ticked rows, as text
EXAMPLES = (3, 5, 10)
_FOUND = "rows-examples"  # session state: the last examples


def chosen(found: Scored) -> tuple[int, str]:
    """The cell that the boxes name."""
    first, second, _ = st.columns([1, 1, 2])
    block = selection.choose("Block", found.blocks, "block", place=first)
    projection = selection.choose("Projection", found.projections, "projection", place=second)
    return block, projection


def ticked_text() -> str:
    """The ticked rows as they stand in the link."""
    return str(st.session_state.get(TICKED) or st.query_params.get(TICKED, ""))


def show(found: Scored, block: int, projection: str) -> None:
    """The table of one page of the cell's rows, and the ticks."""
    frame = scored.cell_rows(found, block, projection)
    st.markdown(f"#### Rows of block {block}, {layout.plain(projection)}")
    if frame.is_empty():
        st.info("This block has no such projection; choose another cell.")
        return
    columns = st.columns([1, 1, 1])
    shown = selection.switch("Values", tuple(VALUES), "row_values", default="Percentile", place=columns[0])
    with columns[1]:
        sort_by = selection.choose(
            "Sort by", ["row", *found.selectors], "row_sort",
            title=lambda name: "Row number" if name == "row" else palette.title(name),
        )  # fmt: skip
    first = selection.switch("First", ("Lowest", "Highest"), "row_first", default="Lowest", place=columns[2])
    column = "row" if sort_by == "row" else f"{sort_by} rank"
    ordered = frame.sort(column, descending=first == "Highest")
    page = _page(ordered.height)
    part = ordered[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    _table(found, part, VALUES[shown])
    _ticks(found, part)
    _examples(found, block, projection)
    label = f"Download all {frame.height:,} rows of this cell (CSV)"
    tools.download_csv(label, frame, f"rows-block{block}-{tools.file_name(projection)}.csv")


def _page(rows: int) -> int:
    pages = -(-rows // PAGE_ROWS)
    if not 1 <= st.session_state.get("rows_page", 1) <= pages:
        st.session_state["rows_page"] = 1
    if pages == 1:
        return 1
    return int(st.pagination(pages, key="rows_page", bind="query-params"))


def _table(found: Scored, part: pl.DataFrame, value: str) -> None:
    wide = part.select(
        pl.col("row").alias("Row"),
        pl.col("row_id").alias("Row id"),
        *(pl.col(f"{name} {value}").alias(palette.title(name)) for name in found.selectors),
    )
    form = {"percentile": "%.1f", "rank": "%d", "score": "%.4g"}[value]
    st.dataframe(
        wide, hide_index=True, height=38 + 35 * part.height,
        column_config={palette.title(name): st.column_config.NumberColumn(format=form) for name in found.selectors},
    )  # fmt: skip
    st.caption(
        "Percentile 0 and rank 0: the row of the whole model that LeRF removes first; percentile 100: the one it "
        "removes last. Of Random, the first seed."
    )


def _ticks(found: Scored, part: pl.DataFrame) -> None:
    """Ticks of this page, kept in the text that the link carries."""
    names = dict(part.select("row_id", "row").iter_rows())
    try:
        ticked = set(row_sets.parse(ticked_text(), found.n_rows).tolist())
    except InputError:
        return  # the box of row ids says what is wrong with it
    key = "rows-ticks"
    st.session_state[key] = [row for row in names if row in ticked]

    def keep() -> None:
        here = set(st.session_state[key])
        st.session_state[TICKED] = row_sets.write((ticked - set(names)) | here)

    st.pills(
        "Tick rows of this page to zero them", list(names), selection_mode="multi", key=key,
        format_func=lambda row: str(names[row]), on_change=keep,
    )  # fmt: skip


def _examples(found: Scored, block: int, projection: str) -> None:
    """Tokens of the evaluation text at which the ticked rows of this cell are most active."""
    with st.expander("Where are the ticked rows of this cell most active?", key="rows-activity", on_change="rerun"):
        try:
            ticked = row_sets.parse(ticked_text(), found.n_rows)
        except InputError:
            return
        where = scored.where(found, ticked.tolist())
        here = where.filter(pl.col("block") == block, pl.col("projection") == projection)
        ids = here["row_id"].to_list()[: measure.EXAMPLE_ROWS]
        top = selection.pick("Tokens per row", EXAMPLES, "row_examples", default=5)
        pressed = st.button("Find their tokens", key="rows-find", disabled=not ids)
        status = st.empty()
        if not ids:
            status.caption("Tick rows of this cell first.")
        if here.height > len(ids):
            st.caption(f"Of {here.height:,} ticked rows the first {len(ids)} are looked up.")
        if pressed:
            with layout.told():

                def say(what: str, _done: int, _total: int) -> None:
                    status.caption(f"{what} …")

                weights_hash = found.model.get("weights_hash")
                with trial.loaded_model(found.load_from, weights_hash, status.caption) as entry:
                    status.caption("Reading the evaluation text …")
                    tokens = measure.examples(entry.loaded, ids, top, say)
                st.session_state[_FOUND] = (str(found.folder), tokens)
                status.empty()
        folder, tokens = st.session_state.get(_FOUND, ("", None))
        if tokens is not None and folder == str(found.folder):
            _show_examples(found, tokens)


def _show_examples(found: Scored, tokens: pl.DataFrame) -> None:
    named = tokens.join(found.rows, on="row_id", how="left")
    parts = []
    for (row_id,), lines in named.group_by("row_id", maintain_order=True):
        block, projection, row = lines.select("block", "projection", "row").row(0)
        title = html.escape(f"Row {row} of block {block} {projection} (id {row_id})")
        items = "".join(_line(line) for line in lines.iter_rows(named=True))
        parts.append(f'<p style="margin:0.6rem 0 0.1rem"><b>{title}</b></p><ul>{items}</ul>')
    st.html(f'<div style="overflow-wrap:anywhere;font-size:0.9rem">{"".join(parts)}</div>')
    st.caption(
        "The row's output is largest in size at the marked tokens, among "
        f"{measure.WINDOWS} windows of {measure.WINDOW_TOKENS} tokens; the number is the output there."
    )
    tools.download_csv("Download these tokens (CSV)", tokens, "row-tokens.csv")


def _line(line: dict[str, object]) -> str:
    value = f"{line['value']:+.3g}".replace("-", "−")
    before, token, after = (html.escape(str(line[name])) for name in ("before", "token", "after"))
    return f"<li><code>{value}</code> {before}<mark>{token}</mark>{after}</li>"
