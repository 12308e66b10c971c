"""The view of the parts of a mask that do its harm (`analyze MODEL parts`)."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import formats, palette, parts as chart, series
from dashboard.show import selection, tools
from dashboard.state import sources

STEM = "parts"
NOTES = ("Shares of several parts need not add up to 100%: parts that do harm only together, or each alone, exist.",)


def render(picked: sources.Source) -> pl.DataFrame:
    """The view of one mask; returns what it shows. Errors: InputError where the run has no such table."""
    table = picked.table(STEM)
    with st.container(horizontal=True, gap="medium"):
        names = palette.in_order(table["selector"].to_list())
        name = selection.choose("Selector", names, "parts_selector", title=palette.title)
        orders = table["order"].unique(maintain_order=True).to_list()
        order = selection.switch(
            "Order", orders, "parts_order", default=orders[0], title=series.ORDER_TITLES.__getitem__
        )
        rates: list[Any] = sorted(set(table["rate"]))
        rate = selection.switch("Rows removed", rates, "parts_rate", default=rates[0], title=formats.rate)
    shown = table.filter(selector=name, order=order, rate=rate)
    for part, column in zip(("projection", "block"), st.columns(2, gap="medium"), strict=True):
        lines = shown.filter(part=part)
        with column:
            if lines["restored"].null_count() == lines.height:
                st.info(f"This mask does no harm, so that no {part} can do it.")
                continue
            tools.show(chart.restored(lines), f"parts-{part}", finding=chart.finding(lines))
    return shown
