"""Depth: in which blocks a selector sees importance."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import formats, lines as lines_chart, palette
from dashboard.charts.findings import rows as findings
from dashboard.charts.lines import Axis
from dashboard.show import menu, selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source
from engine.stats.limits import Thresholds

MASKS, BLOCKS, SUBLAYERS, PROJECTIONS = "Removed rows", "Blocks", "Attention and MLP", "Projections"
WHOLE = "Whole blocks"
_TITLES = {MASKS: MASKS, BLOCKS: "Mean scores", SUBLAYERS: SUBLAYERS, PROJECTIONS: PROJECTIONS}
SUBLAYER_TITLES = {"attention": "Attention", "mlp": "MLP"}


def show(source: Source) -> Drawn:
    """A panel for the blocks, the sublayers or the projections."""
    table = source.table("depth")
    available = palette.in_order(table["selector"].unique().to_list())
    with source.bar:
        masks = source.table("mask_depth") if source.has("mask_depth") else None
        levels = (BLOCKS, SUBLAYERS, PROJECTIONS) if masks is None else (MASKS, BLOCKS, SUBLAYERS, PROJECTIONS)
        level = selection.switch("Show", levels, "level", default=levels[0], title=_TITLES.__getitem__)
    with source.drawer():
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    chosen = table.filter(pl.col("selector").is_in(selectors))
    if chosen.is_empty():
        st.info("Nothing is chosen: choose at least one selector.")
    if masks is not None and level == MASKS:
        with source.hero():
            _removed(masks.filter(pl.col("selector").is_in(selectors)))
        return _drawn(masks)
    panels = _panels(chosen, level) if chosen.height else []
    for start in range(0, len(panels), 2):
        pair = panels[start : start + 2]
        with st.container() if start else source.hero():
            columns = st.columns(2) if len(panels) > 1 else st.columns(1)
        for column, (name, frame) in zip(columns, pair, strict=False):
            with column:
                _profile(frame, name, hero=not start)
    return _drawn(table)


def _drawn(table: pl.DataFrame) -> Drawn:
    with st.container(horizontal=True):
        menu.link("Is it more than depth?", "believed", {"part": "Explained by depth"})
        menu.link("The rows of one mask, on the map", "rows", {"measure": "Share in the mask"})
    return Drawn(table, notes=("Random stands for the mean over its seeds.",))


def removed(masks: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """Of the rate nearest to the verdicts': selector, block, share of the block's rows that the LeRF mask removes."""
    rate = min(set(masks["rate"]), key=lambda one: abs(one - Thresholds().rate))
    of_rate = masks.filter(pl.col("rate") == rate).group_by("selector", "block", maintain_order=True)
    sums = of_rate.agg(pl.col("removed", "rows").sum())
    return sums.with_columns(share=pl.col("removed") / pl.col("rows")), rate


def _removed(masks: pl.DataFrame) -> None:
    shares, rate = removed(masks)
    figure = lines_chart.lines(
        shares, Axis("block", "block"), Axis("share", "share of the block's rows", "share"), heading=MASKS,
        hover=lambda row: f"block {row['block']}<br>{row['removed']:,.0f} of {row['rows']:,} rows ({row['share']:.1%})",
    )  # fmt: skip
    below = f"which share of each block's rows goes with the lowest {formats.rate(rate)} of the scores"
    tools.show(figure, "mask-depth", finding=findings.uneven(shares, rate), below=below, hero=True)


def _panels(table: pl.DataFrame, level: str) -> list[tuple[str, pl.DataFrame]]:
    whole = pl.col("projection").is_null()
    if level == BLOCKS:
        return [(WHOLE, table.filter(whole, pl.col("sublayer").is_null()))]
    column = "sublayer" if level == SUBLAYERS else "projection"
    rows = table.filter(whole & pl.col("sublayer").is_not_null() if level == SUBLAYERS else ~whole)
    return [(SUBLAYER_TITLES.get(name, name), part) for (name,), part in rows.group_by(column, maintain_order=True)]


def _profile(frame: pl.DataFrame, name: str, *, hero: bool) -> None:
    figure = lines_chart.lines(
        frame, Axis("block", "block"), Axis("relative_score", "mean score ÷ its highest"), heading=name, hover=_hover
    )
    told = findings.peaks(frame, "relative_score", "" if name == WHOLE else name)
    below = "mean score of a selector's rows, divided by its highest"
    tools.show(figure, f"depth-{name}", finding=told, below=below, hero=hero)


def _hover(row: dict[str, Any]) -> str:
    relative = f"{row['relative_score']:.4f}" if row["relative_score"] is not None else "–"
    return f"block {row['block']}<br>relative {relative}<br>mean score {row['mean_score']:.6g}"


PART = Part(
    show, ("depth",),
    "Removed rows: which share of each block goes first. Mean scores: block by block, relative to the selector's "
    "highest; different selectors have different units, so compare where the lines are high, not how high they are.",
)  # fmt: skip
