"""Pieces of the report's HTML. What comes from files is escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dashboard import figure_size

_NUMERIC = ' class="n"'


def figure(drawn: go.Figure) -> str:
    """A figure that draws itself with the page's one copy of plotly."""
    figure_size.sized(drawn)
    drawn.update_layout(template="plotly_white")
    return str(
        drawn.to_html(
            full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True}
        )
    )


def frame(values: pl.DataFrame) -> str:
    """A frame as it is, null as a dash."""
    return table(
        values.columns,
        [tuple("–" if value is None else value for value in row) for row in values.iter_rows()],
    )


def table(heading: Sequence[str], rows: Sequence[tuple[object, ...]]) -> str:
    """A table; everything in it is text, never HTML."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in heading)
    lines = (
        "".join(
            f"<td{_NUMERIC if isinstance(value, float) else ''}>{html.escape(str(value))}</td>"
            for value in row
        )
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
