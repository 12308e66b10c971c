"""Agreement: do selectors take the same rows? All pairs at a glance."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import agreement, palette
from dashboard.charts.findings import rows as findings
from dashboard.show import layout, selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source

JACCARD, ABOVE_CHANCE = "Jaccard", "Above chance"


def show(source: Source) -> Drawn:
    """Overlaps of masks on the left, correlations of whole rankings on the right."""
    overlaps = source.table("jaccard")
    with source.bar:
        rate, value = _settings(overlaps)
    above_chance = value == ABOVE_CHANCE
    selectors = palette.in_order([*overlaps["selector_a"], *overlaps["selector_b"]])
    with source.hero():
        left, right = st.columns(2)
    with right, layout.told():
        table = source.table("spearman")
        pairs = agreement.correlations(table)
        selectors = agreement.by_likeness(pairs, selectors)
        figure = agreement.spearman_matrix(pairs, selectors)
        tools.show(figure, "spearman", key="spearman-cells", finding=findings.correlation(table), hero=True)
    with left:
        attention, mlp = (agreement.overlaps(overlaps, rate, name) for name in ("attention", "mlp"))
        figure = agreement.triangles(attention, mlp, selectors, rate, above_chance=above_chance)
        told = findings.overlap(overlaps, rate, above_chance=above_chance)
        tools.show(figure, "jaccard", key="jaccard-cells", finding=told, hero=True)
    return Drawn(overlaps, notes=("Random stands for the mean over its seeds.",))


def _settings(overlaps: pl.DataFrame) -> tuple[float, str]:
    rate = selection.rate("Rows removed", sorted(set(overlaps["rate"])), "rate", default=0.3, shared="rate")
    if overlaps["expected_random"].null_count() == overlaps.height:
        st.caption("What random masks would share was not printed.", width="content")
        return rate, JACCARD
    value = selection.switch(
        "Show", (JACCARD, ABOVE_CHANCE), "value", default=JACCARD,
        help_text="Above chance: the Jaccard less that of random masks with as many rows in the sublayer.",
    )  # fmt: skip
    return rate, value


PART = Part(
    show, ("jaccard", "spearman"),
    "Each cell is a pair of selectors. Jaccard is the share of rows in both masks among the rows in either: 1 is the "
    "same mask, and random masks of the same sizes give what the hover says. Spearman compares whole rankings.",
)  # fmt: skip
