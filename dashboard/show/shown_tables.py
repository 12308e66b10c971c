"""Tables: whose columns sort by number while their cells read as text; with what their columns mean; and the registry
of tables as such a description."""

from collections.abc import Iterable
from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts.sortable import Sortable
from engine.results.tables import TABLES, TableSpec, command

LINES = 10_000  # of a table that are sent to the browser


def told(column: str) -> pl.Expr:
    """A column of sentences for cells, which have no markdown: commands stand in quotation marks, not in backticks."""
    return pl.col(column).str.replace_all("`([^`]+)`", "“$1”")


def show(table: Sortable, **options: Any) -> None:
    st.dataframe(_styled(table), hide_index=True, **options)


def _styled(table: Sortable) -> Any:
    """Streamlit takes a pandas styler's texts for the cells and its numbers for sorting and copying."""
    frame = table.numbers.to_arrow().to_pandas()  # polars' own `to_pandas` keeps the interpreter while it waits
    style = frame.style
    for name in table.texts.columns:
        texts: dict[object, str] = {}
        alike: list[int] = []  # rows whose text is that of their number everywhere above
        for row, (value, text) in enumerate(zip(table.numbers[name], table.texts[name], strict=True)):
            shown = "–" if text is None else text
            if value is not None and value == value and texts.setdefault(value, shown) == shown:
                alike.append(row)
            else:  # no number, or one number with two texts
                style = style.format(lambda _, shown=shown: shown, subset=([row], [name]), na_rep=shown)
        style = style.format(texts.__getitem__, subset=(alike, [name]))
    return style


def described(frame: pl.DataFrame, title: str, columns: pl.DataFrame) -> None:
    """The values, each column with its meaning as help, and the list of the columns below.
    columns: as `columns_of` gives them; empty where nothing is known about them."""
    helps = {
        name: st.column_config.Column(help=f"{meaning}{f' ({unit})' if unit else ''}")
        for name, unit, meaning in columns.select("Column", "Unit", "Meaning").iter_rows()
    }
    if frame.height > LINES:  # the browser gets every line of a table at once
        st.caption(f"The first {LINES:,} of {frame.height:,} lines; the download below has all of them.")
        frame = frame.head(LINES)
    st.dataframe(frame, hide_index=True, column_config=helps, height=min(38 + 35 * len(frame), 460), alt=title)
    if columns.height:
        with st.expander("What the columns are"):
            st.dataframe(columns, hide_index=True, alt="Columns with their units and meanings")


def columns_of(stem: str, names: Iterable[str]) -> pl.DataFrame:
    """Column, Unit, Meaning of a table's columns by these names; empty for a table that is not registered."""
    about = [TABLES.get(stem).column(name) for name in names] if stem in TABLES else []
    lines = [(one.name, one.unit, one.meaning) for one in about if one is not None]
    return pl.DataFrame(lines, schema=dict.fromkeys(("Column", "Unit", "Meaning"), pl.String), orient="row")


def registered() -> pl.DataFrame:
    """Every registered table: File, What it holds, Command, Columns."""
    lines = [(file(one), one.title, command(one.stem), len(one.columns)) for one in TABLES]
    return pl.DataFrame(lines, schema=["File", "What it holds", "Command", "Columns"], orient="row")


def columns() -> pl.DataFrame:
    """Every column of every registered table: File, Column, Names a line, May be missing, Type, Unit, Meaning."""
    lines = [
        (file(table), one.name, one.name in table.keys, one.optional, str(one.dtype), one.unit, one.meaning)
        for table in TABLES for one in table.columns
    ]  # fmt: skip
    names = ["File", "Column", "Names a line", "May be missing", "Type", "Unit", "Meaning"]
    return pl.DataFrame(lines, schema=names, orient="row")


def file(about: TableSpec) -> str:
    """The name of a table's file, told apart where two kinds of folder have one of that name."""
    return f"{about.file or about.stem}.parquet" + (" (judged replies)" if about.file else "")
