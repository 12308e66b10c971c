"""Tables whose columns sort by number while their cells read as text."""

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts.sortable import Sortable


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
