"""Depth: in which blocks a selector sees importance, and where its masks take their rows."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import agreement, formats, lines as lines_chart, palette
from dashboard.charts.findings import rows as findings
from dashboard.charts.lines import Axis
from dashboard.show import layout, menu, selection, tools
from dashboard.state import sources

HOW_TO_READ = (
    "Each line is the mean score of a selector's rows, block by block, relative to its highest point. Scores of "
    "different selectors have different units, so compare where the lines are high, not how high they are."
)
LINE = "In which blocks a selector sees importance: where a line is high, not how high it is."
BLOCKS, SUBLAYERS, PROJECTIONS = "Blocks", "Attention and MLP", "Projections"
WHOLE = "Whole blocks"
SUBLAYER_TITLES = {"attention": "Attention", "mlp": "MLP"}
LAYER_MATCHED = """
A selector can do well for a dull reason: it may only have found out *which layers* can spare rows, not which rows.
The **layer-matched** control settles that. It removes exactly as many rows from every layer as the real mask does,
but draws them at random. If the control costs about as much as the real mask, the selector knew depth and nothing
more; if it costs much more, the choice of rows inside the layers matters.
"""


def render() -> None:
    """The page."""
    source = sources.pick(layout.heading("Depth", LINE), ("depth", "mask_depth"))
    if source is None:
        return
    profile = None
    with layout.told():
        profile = source.table("depth")
        _profiles(source, profile)
        layout.how_to_read(HOW_TO_READ)
    with layout.told():
        _mask(source)
    note = "Random stands for the mean over its seeds."
    tools.end(profile, f"depth-{tools.file_name(source.model)}", note, *source.provenance)


def _profiles(source: sources.Source, table: pl.DataFrame) -> None:
    available = palette.in_order(table["selector"].unique().to_list())
    with source.bar:
        level = selection.switch("Level", (BLOCKS, SUBLAYERS, PROJECTIONS), "level", default=BLOCKS)
    with source.drawer():
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    chosen = table.filter(pl.col("selector").is_in(selectors))
    if chosen.is_empty():
        st.info("Nothing is chosen: choose at least one selector.")
        return
    panels = _panels(chosen, level)
    for start in range(0, len(panels), 2):
        pair = panels[start : start + 2]
        with st.container() if start else source.hero():
            columns = st.columns(2) if len(panels) > 1 else st.columns(1)
        for column, (name, frame) in zip(columns, pair, strict=False):
            with column:
                _profile(frame, name, hero=not start)


def _panels(table: pl.DataFrame, level: str) -> list[tuple[str, pl.DataFrame]]:
    whole = pl.col("projection").is_null()
    if level == BLOCKS:
        return [(WHOLE, table.filter(whole, pl.col("sublayer").is_null()))]
    if level == SUBLAYERS:
        found = table.filter(whole, pl.col("sublayer").is_not_null())
        names = found["sublayer"].unique(maintain_order=True).to_list()
        return [(SUBLAYER_TITLES.get(name, name), found.filter(pl.col("sublayer") == name)) for name in names]
    found = table.filter(~whole)
    return [
        (name, found.filter(pl.col("projection") == name))
        for name in found["projection"].unique(maintain_order=True).to_list()
    ]


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


def _mask(source: sources.Source) -> None:
    layout.section("Where the rows of a mask are")
    table = source.table("mask_depth")
    left, right = st.columns(2)
    with left:
        available = palette.in_order(table["selector"].unique().to_list())
        selector = selection.choose("Mask of", available, "mask_selector", default="lrp", title=palette.title)
    rates = sorted(set(table["rate"]))
    rate = selection.rate("Rows removed", rates, "mask_rate", default=0.3, place=right, shared="rate")
    counts = table.filter(pl.col("selector") == selector, (pl.col("rate") - rate).abs() < 1e-9)
    left, right = st.columns([3, 2])
    with left:
        figure = agreement.removed_share(
            counts, f"{palette.title(selector)}: share of each layer removed", f"LeRF at {formats.rate(rate)}"
        )  # fmt: skip
        told = findings.thickest(counts, palette.title(selector), f"LeRF at {formats.rate(rate)}")
        below = "share of each layer's rows that the mask removes"
        tools.show(figure, "mask-depth", finding=told, below=below)
    with right:
        st.subheader("The layer-matched control", anchor=False)
        st.markdown(LAYER_MATCHED)
        menu.link("What it costs, selector by selector", "controls", {"part": "Explained by depth"})
