"""The tab that tells which differences between selectors are real."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import differences as chart
from dashboard.charts.findings import curves as findings
from dashboard.show import selection, tools
from dashboard.state import sources
from engine.stats.blocks import has_blocks
from engine.studies.estimate_words import units_in_words

NOTES = (
    "Many pairs are compared at once: p is adjusted by Holm over all of them, and what is told apart has at most .05.",
)


def errors_note(whole: pl.DataFrame, drawn: bool) -> str:
    """What the errors of this run's table hold."""
    if not has_blocks(whole):
        return (
            "Standard errors take evaluation windows as independent; neighbouring windows are alike, so these errors "
            "are too small. Run `selector-audit analyze MODEL differences` again for errors over blocks of windows."
        )
    calibration = (
        "and, at the rates at which they were measured, between disjoint draws of the calibration text"
        if drawn
        else "but not over draws of the calibration text, which were not measured"
    )
    return f"Errors are over {units_in_words(whole, numbers=True)} and over random's seeds, {calibration}."


def render(picked: sources.Source) -> pl.DataFrame:
    """The tab; returns what it shows. Errors: InputError where the run has no such table."""
    whole = picked.table("differences")
    rates = sorted(set(whole["rate"]))
    rate = selection.rate("Rows removed", rates, "difference_rate", default=0.3, place=picked.bar, shared="rate")
    drawn = picked.optional("draw_sweep")
    lerf, gaps = (chart.over_seeds(whole, kind, rate, drawn) for kind in ("lerf", "gap"))
    if lerf.height:
        apart = sum(map(chart.apart, lerf.iter_rows(named=True)))
        told = findings.differences(apart, lerf.height, rate)
        tools.show(chart.pairs(lerf, rate), "differences", finding=told)
    destroyed = int(lerf["saturated"].sum())
    beyond = f" Of {destroyed} pairs both masks destroy the model: these are not compared." if destroyed else ""
    st.caption(f"Told apart: p at most {chart.LEVEL:g} after Holm.{beyond} {errors_note(whole, drawn is not None)}")
    names = {
        "selector_a": "Selector", "selector_b": "minus", "difference": "Nats per token", "stderr": "Error",
        "low": "95% from", "high": "to", "p_holm": "p, Holm",
    }  # fmt: skip
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
