"""Figures of the Rows page: values per block and projection."""

import html
from collections.abc import Collection, Sequence

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import matrix

REACH_PX = 100  # a click anywhere in a cell finds the mark in its middle
NUMBERED = 16  # blocks: of more, numbers stand in the hover only, and the colours show the pattern
OUTLINE = "#E52EC1"  # of a cell: on none of the scale's colours, on white and on dark
Place = tuple[int, str]  # block, projection


def cells(
    frame: pl.DataFrame, blocks: Sequence[int], projections: Sequence[str], *, heading: str, below: str, kind: str,
    outlined: Collection[Place] = (),
) -> go.Figure:  # fmt: skip
    """Blocks from top to bottom, projections from left to right; numbers in the cells of up to `NUMBERED` blocks.
    frame: columns block, projection, rows, value, ...
    kind: `score`, `share` (0 to 1), `difference` (around 0, percentile points). The colours of scores and differences
    are places among all cells: real models have single cells far above the rest. outlined: cells with a frame."""
    by_cell = {(row["block"], row["projection"]): row for row in frame.iter_rows(named=True)}
    table = [[by_cell.get((block, name)) for name in projections] for block in blocks]
    values = [[None if row is None else row["value"] for row in line] for line in table]
    present = [row["value"] for row in by_cell.values()]
    colours = {"score": matrix.places, "difference": matrix.signed_places}
    text = {"score": "{:.3g}", "share": "{:.0%}", "difference": "{:+.0f}"}[kind]
    figure = matrix.matrix(
        values, projections, [f"block {block}" for block in blocks], heading=heading, below=below,
        text=lambda value: text.format(value).replace("-", "−") if len(blocks) <= NUMBERED else "",
        diverging=kind == "difference", span=(-1.0 if kind == "difference" else 0.0, 1.0),
        colour=colours[kind](present) if kind in colours else float,
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
