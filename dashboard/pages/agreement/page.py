"""Agreement: do selectors take the same rows? All pairs at a glance, two masks in detail."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import agreement, formats, palette
from dashboard.charts.findings import rows as findings
from dashboard.pages.agreement import rankings
from dashboard.show import layout, selection, tools
from dashboard.state import sources
from engine.records.errors import InputError

HOW_TO_READ = (
    "Each cell is a pair of selectors. Jaccard is the share of rows in both masks among the rows in either: 1 is the "
    "same mask, and random masks of the same sizes give what the hover says. Spearman compares whole rankings."
)
LINE = "How much two selectors choose the same rows: masks on the left, whole rankings on the right."
JACCARD, ABOVE_CHANCE = "Jaccard", "Above chance"
_CLICKS = "agreement-clicks"


def render() -> None:
    """The page."""
    source = sources.pick(layout.heading("Agreement", LINE), ("jaccard", "spearman"))
    if source is None:
        return
    shown: list[pl.DataFrame] = []
    with layout.told():
        overlaps = source.table("jaccard")
        with source.bar:
            rate, value = _controls(overlaps)
        selectors = palette.in_order([*overlaps["selector_a"], *overlaps["selector_b"]])
        with source.hero():
            left, right = st.columns(2)
        with left:
            _triangles(overlaps, selectors, rate, value)
        shown.append(overlaps)
        with right, layout.told():
            _correlations(source, selectors)
        layout.how_to_read(HOW_TO_READ)
        _pair(source, overlaps, selectors, rate)
    notes = ["Random stands for the mean over its seeds; two masks in detail show its first seed."]
    tools.end(shown[0] if shown else None, f"agreement-{tools.file_name(source.model)}", *notes, *source.provenance)


def _controls(overlaps: pl.DataFrame) -> tuple[float, str]:
    rates = sorted(set(overlaps["rate"]))
    rate = selection.rate("Rows removed", rates, "rate", default=0.3, shared="rate")
    if overlaps["expected_random"].null_count() == overlaps.height:
        st.caption("What random masks would share was not printed.", width="content")
        return rate, JACCARD
    value = selection.switch(
        "Show", (JACCARD, ABOVE_CHANCE), "value", default=JACCARD,
        help_text="Above chance: the Jaccard less that of random masks with as many rows in the sublayer.",
    )  # fmt: skip
    return rate, value


def _triangles(overlaps: pl.DataFrame, selectors: list[str], rate: float, value: str) -> None:
    attention, mlp = (agreement.overlaps(overlaps, rate, name) for name in ("attention", "mlp"))
    figure = agreement.triangles(attention, mlp, selectors, rate, above_chance=value == ABOVE_CHANCE)
    alt = (
        f"{value} of the masks of every pair of selectors at {formats.rate(rate)}: attention above the diagonal, "
        f"MLP below it. {_extremes(overlaps, rate)}"
    )
    told = findings.overlap(overlaps, rate, above_chance=value == ABOVE_CHANCE)
    points = tools.show(figure, "jaccard", alt, key="jaccard-cells", clickable=True, finding=told, hero=True)
    _follow(points, selectors, "jaccard")


def _extremes(overlaps: pl.DataFrame, rate: float) -> str:
    part = overlaps.filter((pl.col("rate") - rate).abs() < 1e-9, pl.col("jaccard").is_not_null()).sort("jaccard")
    if part.is_empty():
        return ""
    least, most = part.row(0, named=True), part.row(-1, named=True)
    texts = [
        f"{palette.title(row['selector_a'])} and {palette.title(row['selector_b'])} in {row['sublayer']} "
        f"{row['jaccard']:.2f}"
        for row in (least, most)
    ]
    return f"Least alike: {texts[0]}; most alike: {texts[1]}."


def _correlations(source: sources.Source, selectors: list[str]) -> None:
    table = source.table("spearman")
    figure = agreement.spearman_matrix(agreement.correlations(table), selectors)
    alt = "Spearman correlation of the scores of every pair of selectors over all rows."
    told = findings.correlation(table)
    points = tools.show(figure, "spearman", alt, key="spearman-cells", clickable=True, finding=told, hero=True)
    _follow(points, selectors, "spearman")


def _follow(points: list[dict[str, Any]], selectors: list[str], chart: str) -> None:
    """A newly clicked cell chooses its pair; a chart keeps its selection, so the same click counts once."""
    cells = [point["customdata"][:2] for point in points if point.get("customdata")]
    seen = st.session_state.setdefault(_CLICKS, {})
    if cells and seen.get(chart) != cells[0]:
        first, second = (selectors[int(index)] for index in cells[0])
        st.session_state["first"], st.session_state["second"] = first, second
    seen[chart] = cells[0] if cells else None


def _pair(source: sources.Source, overlaps: pl.DataFrame, selectors: list[str], rate: float) -> None:
    layout.section("Two masks in detail")
    st.caption("Click a cell above, or choose.")
    left, right = st.columns(2)
    first = selection.choose("First selector", selectors, "first", default="lrp", title=palette.title, place=left)
    second = selection.choose("Second selector", selectors, "second", default="ig", title=palette.title, place=right)
    st.text(_summary(source, overlaps, first, second, rate))
    if source.published:
        st.info("The paper printed no masks by block; choose measured results to see them here.")
        return
    with layout.told():
        counts = rankings.overlap(source.folder, first, second, rate)
        _layers(counts, first, second, rate)


def _summary(source: sources.Source, overlaps: pl.DataFrame, first: str, second: str, rate: float) -> str:
    parts = []
    for sublayer, name in (("attention", "attention"), ("mlp", "MLP")):
        pair = agreement.overlaps(overlaps, rate, sublayer).get((first, second), {})
        value, chance = pair.get("jaccard"), pair.get("expected_random")
        if value is not None:
            parts.append(
                f"Jaccard in {name} {value:.3f}" + (f" (by chance {chance:.3f})" if chance is not None else "")
            )
    try:
        rho = agreement.correlations(source.table("spearman")).get((first, second), {}).get("spearman")
    except InputError:
        rho = None
    if rho is not None:
        parts.append(f"Spearman {rho:.3f}".replace("-", "−"))
    return " · ".join(parts) if parts else "Choose two different selectors."


def _layers(counts: pl.DataFrame, first: str, second: str, rate: float) -> None:
    names = (palette.title(first), palette.title(second))
    for column, key, name in zip(st.columns(2), ("first", "second"), names, strict=True):
        with column:
            figure = agreement.removed_share(
                counts, key, f"{name}: share of each layer removed", f"LeRF at {formats.rate(rate)}"
            )
            tools.show(
                figure, f"mask-{key}", f"Share of the rows of every block and projection that {name} removes.",
                key=f"mask-{key}", finding=findings.thickest(counts, key, name, f"LeRF at {formats.rate(rate)}"),
                below="share of each layer's rows that the mask removes",
            )  # fmt: skip
    figure = agreement.layer_jaccard(counts, names)
    alt = f"Jaccard of the masks of {names[0]} and {names[1]} by block and projection."
    tools.show(figure, "mask-overlap", alt, finding=findings.layers_alike(counts, names))
