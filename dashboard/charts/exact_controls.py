"""What selectors make of rewritten weights that compute the same: one mark per rewrite, a line where nothing moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, palette
from dashboard.charts.lines import finished

_SYMBOLS = ("circle", "diamond", "square", "cross")
_APART = 0.22  # of a place: marks of one selector that stand at the same value


def before_after(
    wide: pl.DataFrame,
    rewrites: Mapping[str, str],
    *,
    unmoved: float,
    heading: str,
    below: str,
    title: str,
    text: Callable[[float], str],
) -> go.Figure:
    """One place per selector, from above in the usual order. wide: `selector` and a column per rewrite.

    rewrites: column -> its name, at most four. unmoved: the value of a selector that stays the same, drawn as a line.
    Values that are null or not finite have no mark.
    """
    rows = {row["selector"]: row for row in wide.iter_rows(named=True)}
    selectors = palette.in_order(list(rows))
    figure, seen = go.Figure(), [unmoved]
    colours = [palette.style(name).colour for name in selectors]
    for number, ((column, name), symbol) in enumerate(zip(rewrites.items(), _SYMBOLS, strict=False)):
        values = [_finite(rows[selector][column]) for selector in selectors]
        seen += [value for value in values if value is not None]
        shift = (number - (len(rewrites) - 1) / 2) * _APART
        figure.add_scatter(
            x=values, y=[place + shift for place in range(len(selectors))], mode="markers", name=name, cliponaxis=False,
            marker={"symbol": symbol, "size": 10, "color": colours, "line": {"width": 1, "color": palette.REFERENCE}},
            customdata=[
                f"<b>{palette.title(selector)}</b>, {name}<br>{'–' if value is None else text(value)}"
                for selector, value in zip(selectors, values, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>", showlegend=False,
        )  # fmt: skip
        # A legend in the first selector's colour would look like that selector's.
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=name,
            marker={"symbol": symbol, "size": 10, "color": palette.REFERENCE},
        )  # fmt: skip
    figure.add_vline(unmoved, line=palette.DOTTED)
    margin = max(0.08 * (max(seen) - min(seen)), 0.02)
    figure.update_xaxes(**axes.titled(title), range=[min(seen) - margin, max(seen) + margin])
    figure.update_yaxes(**axes.places([palette.title(name) for name in selectors]), automargin=True)
    return finished(figure, heading, below, 190 + 38 * len(selectors), 110)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
