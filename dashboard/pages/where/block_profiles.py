"""Depth: in which blocks a selector sees importance."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import lines as lines_chart, palette
from dashboard.charts.findings import rows as findings
from dashboard.charts.lines import Axis
from dashboard.show import menu, selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source

BLOCKS, SUBLAYERS, PROJECTIONS = "Blocks", "Attention and MLP", "Projections"
WHOLE = "Whole blocks"
SUBLAYER_TITLES = {"attention": "Attention", "mlp": "MLP"}


def show(source: Source) -> Drawn:
    """A panel for the blocks, the sublayers or the projections."""
    table = source.table("depth")
    available = palette.in_order(table["selector"].unique().to_list())
    with source.bar:
        level = selection.switch("Level", (BLOCKS, SUBLAYERS, PROJECTIONS), "level", default=BLOCKS)
    with source.drawer():
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    chosen = table.filter(pl.col("selector").is_in(selectors))
    if chosen.is_empty():
        st.info("Nothing is chosen: choose at least one selector.")
    panels = _panels(chosen, level) if chosen.height else []
    for start in range(0, len(panels), 2):
        pair = panels[start : start + 2]
        with st.container() if start else source.hero():
            columns = st.columns(2) if len(panels) > 1 else st.columns(1)
        for column, (name, frame) in zip(columns, pair, strict=False):
            with column:
                _profile(frame, name, hero=not start)
    with st.container(horizontal=True):
        menu.link("Is it more than depth?", "believed", {"part": "Explained by depth"})
        menu.link("The rows of one mask, on the map", "rows", {"measure": "Share in the mask"})
    return Drawn(table, notes=("Random stands for the mean over its seeds.",))


def _panels(table: pl.DataFrame, level: str) -> list[tuple[str, pl.DataFrame]]:
    whole = pl.col("projection").is_null()
    if level == BLOCKS:
        return [(WHOLE, table.filter(whole, pl.col("sublayer").is_null()))]
    column = "sublayer" if level == SUBLAYERS else "projection"
    rows = table.filter(whole & pl.col("sublayer").is_not_null() if level == SUBLAYERS else ~whole)
    return [(SUBLAYER_TITLES.get(name, name), part) for (name,), part in rows.group_by(column, maintain_order=True)]


def _profile(frame: pl.DataFrame, name: str, *, hero: bool) -> None:
    figure = lines_chart.lines(
        frame, Axis("block", "block"), Axis("relative_score", "÷ highest mean"), heading=name, hover=_hover
    )
    told = findings.peaks(frame, "relative_score", "" if name == WHOLE else name)
    below = "mean score of a selector's rows, divided by its highest"
    tools.show(figure, f"depth-{name}", finding=told, below=below, hero=hero)


def _hover(row: dict[str, Any]) -> str:
    relative = f"{row['relative_score']:.4f}" if row["relative_score"] is not None else "–"
    return f"block {row['block']}<br>relative {relative}<br>mean score {row['mean_score']:.6g}"


PART = Part(
    show, ("depth",),
    "Each line is the mean score of a selector's rows, block by block, relative to its highest point. Scores of "
    "different selectors have different units, so compare where the lines are high, not how high they are.",
)  # fmt: skip
