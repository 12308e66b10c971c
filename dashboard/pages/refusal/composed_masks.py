"""Two domains in one mask: a mask made from the prompts of several domains, beside those of each with as many rows."""

import polars as pl
import streamlit as st

from dashboard.charts import formats, refusal_rates
from dashboard.charts.findings import refusal as findings
from dashboard.show import selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source


def show(source: Source) -> Drawn:
    """Malign refusal on the left, benign refusal on the right, and what each mask costs."""
    table = source.table("composed")
    selector = selection.choose_selector(table, "composed_selector", default="lrp", place=source.bar)
    part = table.filter(selector=selector)
    with source.hero():
        columns = st.columns(2)
    for column, kind in zip(columns, ("malign", "benign"), strict=True):
        with column:
            figure, told = refusal_rates.composed(part, kind), findings.composed(part, kind)
            tools.show(figure, f"composed-{kind}", finding=told, hero=True)
    edits = part.filter(pl.col("mask_domain") != "none").unique("mask_domain", maintain_order=True)
    costs = [
        f"{refusal_rates.mask_title(row['mask_domain'])} {formats.perplexity(row['nll'])}"
        for row in edits.iter_rows(named=True)
    ]
    st.text("Perplexity: " + ", ".join(costs) if costs else "No cell of this selector's grid was good enough.")
    return Drawn(part)


PART = Part(
    show, ("composed",),
    "One mask made from the prompts of several domains, beside the masks of each domain with as many rows, on held-out "
    "prompts. If domains share what they use, the composed mask works on each of them.",
)  # fmt: skip
