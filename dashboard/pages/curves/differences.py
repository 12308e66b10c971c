"""The tab that tells which differences between selectors are real."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import differences as chart, formats, palette
from dashboard.show import selection, tools
from dashboard.state import sources

NOTES = (
    "Standard errors are paired over evaluation windows, which are taken as independent; neighbouring windows are "
    "alike, so these errors are rather too small. Of random they hold the draw of its seed.",
    "Many pairs are compared at once: of 20 pairs without any difference, one lies beyond two standard errors.",
)


def render(picked: sources.Source) -> pl.DataFrame:
    """The tab; returns what it shows. Errors: InputError where the run has no such table."""
    whole = picked.table("differences")
    rates = sorted(set(whole["rate"]))
    rate = selection.rate("Rows removed", rates, "difference_rate", default=0.3)
    lerf, gaps = (chart.over_seeds(whole, kind, rate) for kind in ("lerf", "gap"))
    if lerf.height:
        apart = lerf.filter(pl.col("z").abs() >= chart.ENOUGH).height
        st.text(f"{apart} of {lerf.height} pairs differ by at least {chart.ENOUGH:g} standard errors.")
        close = [
            f"{palette.title(row['selector_a'])} and {palette.title(row['selector_b'])}"
            for row in lerf.filter((pl.col("z").abs() < chart.ENOUGH) | pl.col("z").is_null()).iter_rows(named=True)
        ]
        tools.show(
            chart.pairs(lerf, rate),
            "differences",
            f"NLL of every selector's LeRF mask minus every other's at {formats.rate(rate)}; not told apart: "
            f"{', '.join(close) or 'none'}.",
        )
    names = {"selector_a": "Selector", "selector_b": "minus", "difference": "Nats per token", "stderr": "Error"}
    left, right = st.columns(2)
    with left:
        st.caption("LeRF: one selector's mask minus another's")
        st.dataframe(chart.table(lerf).rename(names), hide_index=True)
    with right:
        st.caption("Log gap: MoRF minus LeRF of one selector")
        st.dataframe(chart.table(gaps).drop("selector_b").rename(names, strict=False), hide_index=True)
    return pl.concat([lerf.with_columns(kind=pl.lit("lerf")), gaps.with_columns(kind=pl.lit("gap"))]).with_columns(
        rate=pl.lit(rate)
    )
