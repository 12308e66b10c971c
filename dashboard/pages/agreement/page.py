"""Agreement: do selectors take the same rows? All pairs at a glance."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import agreement, palette
from dashboard.charts.findings import rows as findings
from dashboard.show import layout, selection, tools
from dashboard.state import sources

HOW_TO_READ = (
    "Each cell is a pair of selectors. Jaccard is the share of rows in both masks among the rows in either: 1 is the "
    "same mask, and random masks of the same sizes give what the hover says. Spearman compares whole rankings."
)
LINE = "How much two selectors choose the same rows: masks on the left, whole rankings on the right."
JACCARD, ABOVE_CHANCE = "Jaccard", "Above chance"


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
    notes = ["Random stands for the mean over its seeds."]
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
    told = findings.overlap(overlaps, rate, above_chance=value == ABOVE_CHANCE)
    tools.show(figure, "jaccard", key="jaccard-cells", finding=told, hero=True)


def _correlations(source: sources.Source, selectors: list[str]) -> None:
    table = source.table("spearman")
    figure = agreement.spearman_matrix(agreement.correlations(table), selectors)
    told = findings.correlation(table)
    tools.show(figure, "spearman", key="spearman-cells", finding=told, hero=True)
