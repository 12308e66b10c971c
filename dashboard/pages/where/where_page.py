"""Where and who: in which blocks selectors see importance, and which selectors take the same rows."""

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import formats, lines as lines_chart, overlap_matrix as agreement, palette
from dashboard.charts.findings import row_findings as findings
from dashboard.charts.lines import Axis
from dashboard.charts.matrix import SUBLAYER_TITLES
from dashboard.show import menu, selection, tools
from dashboard.state import page_parts as parts
from dashboard.state.page_parts import Drawn, Part
from dashboard.state.sources import Source
from engine.stats.limits import Thresholds

JACCARD, RANKINGS = "Jaccard", "Spearman"
_SHOWN = {JACCARD: "Shared rows", RANKINGS: "Whole rankings"}
MOST_PAIRS = 28  # that are listed below their matrix
_NOTES = ("Random stands for the mean over its seeds.",)
MASKS, BLOCKS, SUBLAYERS, PROJECTIONS = "Removed rows", "Mean scores", "Attention and MLP", "Projections"
WHOLE = "Whole blocks"


def _agreement(source: Source) -> Drawn:
    """Overlaps of masks, pair by pair, of few pairs also by sublayer; or correlations of whole rankings."""
    overlaps = source.table("jaccard")
    with source.bar:
        value = selection.switch("Show", tuple(_SHOWN), "value", default=JACCARD, title=_SHOWN.__getitem__)
        rate = selection.rate(overlaps["rate"], "rate") if value != RANKINGS else None
    if rate is None:
        rankings = source.table("spearman")
        figure = agreement.correlations(rankings, "Spearman of the scores", "over all of the rows")
        source.show(figure, "spearman", key="spearman-cells", finding=findings.correlation(rankings))
        return Drawn(rankings, notes=_NOTES)
    at_rate = overlaps.filter((pl.col("rate") - rate).abs() < 1e-9)
    both = {title: at_rate.filter(sublayer=sublayer) for sublayer, title in SUBLAYER_TITLES.items()}
    tables = {title: table for title, table in both.items() if findings.beside_random(table).height} or both
    sentence = findings.overlaps(tables, f"Lowest {formats.rate(rate)}")
    source.show(agreement.overlaps(tables, "Shared rows"), "jaccard", key="jaccard-cells", finding=sentence)
    if 0 < findings.by_pair(tables)[0].height <= MOST_PAIRS:
        below = "most alike first" + ", by the larger of both" * (len(tables) > 1)
        figure = agreement.listed(tables, " and ".join(tables), below)
        tools.show(figure, "jaccard-pairs", key="jaccard-pairs")
    return Drawn(overlaps, notes=_NOTES)


AGREEMENT = Part(
    _agreement, ("jaccard", "spearman"),
    "Each cell is a pair of selectors. Jaccard is the share of rows in both masks among the rows in either; cells show "
    "it divided by what random masks of the same sizes give, where that is known. Whole rankings are compared by "
    "Spearman's correlation.",
)  # fmt: skip


def _depth(source: Source) -> Drawn:
    """A panel for the blocks, the sublayers or the projections."""
    table = source.table("depth")
    available = palette.in_order(table["selector"])
    with source.bar:
        masks = source.table("mask_depth") if source.has("mask_depth") else None
        levels = (BLOCKS, SUBLAYERS, PROJECTIONS) if masks is None else (MASKS, BLOCKS, SUBLAYERS, PROJECTIONS)
        level = selection.switch("Show", levels, "level", default=levels[0])
    with source.drawer():
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    chosen = pl.col("selector").is_in(selectors)
    if not selectors:
        st.info("Nothing is chosen: choose at least one selector.")
        return _drawn(table)
    if masks is not None and level == MASKS:
        shares, rate = removed(masks.filter(chosen))
        below = f"share of each block's rows that are among the lowest {formats.rate(rate)} of the model"
        figure = agreement.by_block(shares, MASKS, below)
        source.show(figure, "mask-depth", finding=findings.uneven(shares))
        return _drawn(masks)
    panels = _panels(table.filter(chosen), level)
    for start in range(0, len(panels), 2):
        pair = panels[start : start + 2]
        columns = (st if start else source.hero()).columns(2 if len(panels) > 1 else 1)
        for column, (name, frame) in zip(columns, pair, strict=False):
            with column:
                figure = lines_chart.lines(
                    frame, Axis("block", "block"), Axis("relative_score", "mean score ÷ its highest"), heading=name,
                    hover=_hover,
                )  # fmt: skip
                sentence = findings.peaks(frame, "relative_score", "" if name == WHOLE else name)
                below = "mean score of a selector's rows, divided by its highest"
                tools.show(figure, f"depth-{name}", finding=sentence, below=below, hero=not start)
    return _drawn(table)


def _drawn(table: pl.DataFrame) -> Drawn:
    with st.container(horizontal=True):
        menu.link("Is it more than depth?", "believed", {"part": "Explained by depth"})
        menu.link("The rows of one mask, on the map", "rows", {"measure": "Removed rows"})
    return Drawn(table, notes=_NOTES)


def removed(masks: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """Of the rate nearest to the verdicts': selector, block, share of the block's rows that the LeRF mask removes."""
    rate = min(set(masks["rate"]), key=lambda one: abs(one - Thresholds().rate))
    of_rate = masks.filter(pl.col("rate") == rate).group_by("selector", "block", maintain_order=True)
    sums = of_rate.agg(pl.col("removed", "rows").sum())
    return sums.with_columns(share=pl.col("removed") / pl.col("rows")), rate


def _panels(table: pl.DataFrame, level: str) -> list[tuple[str, pl.DataFrame]]:
    whole = pl.col("projection").is_null()
    if level == BLOCKS:
        return [(WHOLE, table.filter(whole, pl.col("sublayer").is_null()))]
    column = "sublayer" if level == SUBLAYERS else "projection"
    rows = table.filter(whole & pl.col("sublayer").is_not_null() if level == SUBLAYERS else ~whole)
    return [(SUBLAYER_TITLES.get(name, name), part) for (name,), part in rows.group_by(column, maintain_order=True)]


def _hover(row: dict[str, Any]) -> str:
    relative = f"{row['relative_score']:.4f}" if row["relative_score"] is not None else "–"
    return f"block {row['block']}<br>relative {relative}<br>mean score {row['mean_score']:.6g}"


DEPTH = Part(
    _depth, ("depth",),
    "Removed rows: white is what chance would give. Spare late: at least twice as large a share of the first third of "
    "the blocks goes as of the last; spare early: the reverse. Mean scores: relative to the selector's "
    "highest; units differ between selectors, so compare where the lines are high, not how high they are.",
)  # fmt: skip
PARTS = {"Agreement": AGREEMENT, "Depth": DEPTH}


def render() -> None:
    parts.page("Where and who", "Do the scores choose the same rows, and in which layers do these lie?", PARTS)
