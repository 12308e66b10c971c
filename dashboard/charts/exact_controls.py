"""What selectors make of rewritten weights that compute the same: one mark per rewrite, a line where nothing moves."""

from collections.abc import Callable, Mapping

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, palette

_SYMBOLS = ("circle", "diamond", "square", "cross")


def before_after(
    wide: pl.DataFrame, rewrites: Mapping[str, str], *, unmoved: float, heading: str, below: str, title: str,
    text: Callable[[float], str],
) -> go.Figure:  # fmt: skip
    """A line per selector. wide: `selector` and a column per rewrite.
    rewrites: column -> its name, at most four. unmoved: the value of a selector that stays the same, drawn as a line.
    Values that are null or not finite have no mark."""
    rows = list(palette.sorted_by_selector(wide).iter_rows(named=True))
    titles, colours = ([getattr(palette.style(row["selector"]), of) for row in rows] for of in ("title", "colour"))
    figure, seen = go.Figure(), [unmoved]
    for (column, name), symbol, shift in zip(rewrites.items(), _SYMBOLS, dots.shifts(len(rewrites)), strict=False):
        values = [axes.finite(row[column]) for row in rows]
        seen += [value for value in values if value is not None]
        told = ["–" if value is None else text(value) for value in values]
        hover = [f"<b>{one}</b>, {name}<br>{said}" for one, said in zip(titles, told, strict=True)]
        marks = [dots.Dot(place + shift, value, hover[place]) for place, value in enumerate(values)]
        dots.add(figure, name, marks, colours, symbol, size=10)
    figure.add_vline(unmoved, line=palette.DOTTED)
    margin = max(0.08 * (max(seen) - min(seen)), 0.02)
    axis = {"range": [min(seen) - margin, max(seen) + margin]}
    return dots.finished(figure, titles, title, heading, below, row_px=38, bottom=110, axis=axis)
