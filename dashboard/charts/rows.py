"""Figures of the Rows page: values per block and projection, and a mask beside those of selectors."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, matrix, palette

REACH_PX = 100  # a click anywhere in a cell finds the mark in its middle
BINS = 41  # of a histogram: odd, so that 0 is the middle of one
OUTLINE = "#E52EC1"  # of a cell: on none of the scale's colours, on white and on dark
Place = tuple[int, str]  # block, projection


def cells(
    frame: pl.DataFrame,
    blocks: Sequence[int],
    projections: Sequence[str],
    *,
    heading: str,
    below: str,
    kind: str,
    outlined: Collection[Place] = (),
) -> go.Figure:
    """Blocks from top to bottom, projections from left to right. frame: columns block, projection, rows, value, ...

    kind: `score`, `share` (0 to 1), `difference` (around 0, percentile points). The colours of scores and differences
    are places among all cells: real models have single cells far above the rest. outlined: cells with a frame.
    """
    by_cell = {(row["block"], row["projection"]): row for row in frame.iter_rows(named=True)}
    table = [[by_cell.get((block, name)) for name in projections] for block in blocks]
    values = [[None if row is None else row["value"] for row in line] for line in table]
    present = [row["value"] for row in by_cell.values()]
    colours = {"score": matrix.places, "difference": matrix.signed_places}
    text = {"score": "{:.3g}", "share": "{:.0%}", "difference": "{:+.0f}"}[kind]
    figure = matrix.matrix(
        values, projections, [f"block {block}" for block in blocks], heading=heading, below=below,
        text=lambda value: text.format(value).replace("-", "−"), diverging=kind == "difference",
        span=(-1.0 if kind == "difference" else 0.0, 1.0), colour=colours[kind](present) if kind in colours else None,
        hover=[["" if row is None else _hover(row, kind) for row in line] for line in table], clickable=True,
    )  # fmt: skip
    frames = [
        {
            "type": "rect", "x0": column - 0.47, "x1": column + 0.47, "y0": line - 0.46, "y1": line + 0.46,
            "line": {"color": OUTLINE, "width": 3},
        }
        for line, block in enumerate(blocks) for column, name in enumerate(projections) if (block, name) in outlined
    ]  # fmt: skip
    figure.update_layout(hoverdistance=REACH_PX, shapes=frames)
    return figure


def _hover(row: dict[str, float], kind: str) -> str:
    said = {
        "score": lambda: f"mean score {row['value']:.6g}",
        "share": lambda: f"{row['removed']:,} of {row['rows']:,} rows in the mask ({row['value']:.2%})",
        "difference": lambda: (
            f"mean difference {row['value']:+.2f} percentile points<br>mean absolute difference {row['apart']:.2f}"
        ),
    }[kind]()
    return f"<b>block {row['block']}, {html.escape(str(row['projection']))}</b><br>{row['rows']:,} rows<br>{said}"


def overlaps(compared: pl.DataFrame) -> go.Figure:
    """Jaccard with each other mask as a bar, and what chance gives as a mark. `row_sets.compare`."""
    ordered = compared.reverse()
    names = [html.escape(f"{name}, {order}") for name, order in ordered.select("compared_with", "order").iter_rows()]
    texts = [f"{common:,} of {rows:,}" for common, rows in ordered.select("common", "rows").iter_rows()]
    figure = go.Figure().add_bar(
        x=ordered["jaccard"].to_list(), y=names, orientation="h", text=texts, textposition="outside",
        cliponaxis=False, marker={"color": palette.AFTER}, name="Jaccard",
        hovertemplate="%{y}: Jaccard %{x:.4f}, %{text} rows in common<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=ordered["expected_random"].to_list(), y=names, mode="markers", name="by chance",
        marker={"symbol": "line-ns-open", "size": 14, "color": palette.REFERENCE, "line": {"width": 2}},
        hovertemplate="%{y}: %{x:.4f} by chance<extra></extra>",
    )  # fmt: skip
    top = max([*ordered["jaccard"].to_list(), *ordered["expected_random"].to_list(), 0.01])
    figure.update_xaxes(title="Jaccard", range=[0, min(top * 1.4, 1.3)], zeroline=False)
    figure.update_yaxes(title=None)
    figure.update_layout(
        height=110 + 24 * len(names), margin={"l": 10, "r": 10, "t": 10, "b": 10}, dragmode=False,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1, "x": 0},
    )  # fmt: skip
    return figure


def histogram(values: npt.NDArray[np.float32], title: str) -> go.Figure:
    """How many tokens have which value, on a logarithmic scale, in `BINS` bins of one width around 0. values [n]"""
    known = values[np.isfinite(values)].astype(np.float64)
    reach = float(np.abs(known).max()) if known.size and np.abs(known).max() > 0 else 1.0
    counts, edges = np.histogram(known, bins=BINS, range=(-reach, reach))
    middles = (edges[:-1] + edges[1:]) / 2
    figure = go.Figure().add_bar(
        x=middles.tolist(), y=counts.tolist(), width=(edges[1] - edges[0]) * 0.94,
        marker={"color": [palette.STYLES["ig"].colour if x > 0 else palette.AFTER for x in middles]},
        customdata=[f"{low:.4g} to {high:.4g}".replace("-", "−") for low, high in pairwise(edges)],
        hovertemplate="%{customdata}: %{y:,} tokens<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(**axes.titled(title), range=[-reach * 1.05, reach * 1.05])
    top = float(np.log10(max(int(counts.max()), 10)))
    figure.update_yaxes(**axes.titled("tokens"), type="log", range=[-0.3, top * 1.06], dtick=1)
    figure.update_layout(
        height=220, margin={"l": 10, "r": 10, "t": 24, "b": 40}, showlegend=False, dragmode=False, bargap=0
    )
    return figure
