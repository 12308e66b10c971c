"""Explained by depth: every selector against random rows of its own layers."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import depth_share as chart, formats, palette
from dashboard.charts.findings import controls as findings
from dashboard.show import selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source
from engine.studies.verdict.judged_selectors import DECIDED, with_draws

ORDERS = ("LeRF", "MoRF")


def show(source: Source) -> Drawn:
    """Differences to the own controls, and the share that depths explain; folded, the numbers."""
    table = with_draws(source.table("specific"), source.optional("draw_sweep"))
    with source.bar:
        order = selection.switch("Order", ORDERS, "specific_order", default="LeRF").lower()
        chosen = table.filter(pl.col("order") == order)
        if DECIDED not in table.columns:  # measured at the plan's rates, whatever they do to the model
            rates = sorted(set(table["rate"]))
            rate = selection.rate("Rows removed", rates, "specific_rate", default=0.3, shared="rate")
            chosen = chosen.filter((pl.col("rate") - rate).abs() < 1e-9)
    if chosen.is_empty():
        st.info("Nothing was measured in this order at this rate; choose another.")
        return Drawn(table)
    destroyed = chosen.filter(answer="saturated")
    if destroyed.height:
        titles = ", ".join(palette.title(name) for name in destroyed["selector"])
        st.info(f"Not judged: {titles}. Random rows of the same layers destroy the model at every rate in this order.")
        chosen = chosen.filter(pl.col("answer") != "saturated")
        if chosen.is_empty():
            return Drawn(destroyed)
    with source.hero():
        left, right = st.columns(2)
    with left:
        told = findings.own_depths(chosen, order)
        figure = chart.differences(chosen, order)
        tools.show(figure, f"specific-{order}", key="specific-differences", finding=told, hero=True)
    with right:
        told = findings.depth_share(chosen)
        tools.show(chart.shares(chosen), f"depth-share-{order}", key="depth-share", finding=told, hero=True)
    tools.say_not_finite(chosen["difference"])
    if missing := chosen["depth_share"].null_count():
        st.caption(f"{missing} selector(s) have no clear advantage over random, so no share of it.")
    return Drawn(chosen, lambda: _numbers(chosen))


def _numbers(chosen: pl.DataFrame) -> None:
    seeds = " to ".join(
        dict.fromkeys(str(one) for one in sorted(chosen["matched_seeds"])[:: max(1, chosen.height - 1)])
    )
    random, looks = chosen["random_seeds"][0], chosen["looks"][0] if "looks" in chosen.columns else 1
    allowed = f", which allows for {looks} looks at growing numbers of draws," if looks > 1 else ""
    at_own_rates = (
        "Each selector is compared at the largest rate at which its controls leave the model working. "
        if DECIDED in chosen.columns
        else ""
    )
    st.caption(
        f"{at_own_rates}A control removes as many rows of every layer as the selector's mask, at random ({seeds} draws "
        f"per ranking); random masks come from {random} seeds. The bar of a difference is its 95% interval over blocks "
        "of windows, for one further draw of the control, since a selector that knows nothing about rows is one, and "
        "for the calibration text, where it was drawn anew. "
        f"p{allowed} is adjusted by Holm over the selectors."
    )
    st.dataframe(_table(chosen), hide_index=True, alt="Per selector: the difference, its interval, and the depth share")


def _table(chosen: pl.DataFrame) -> pl.DataFrame:
    chosen = palette.sorted_by_selector(chosen)
    return chosen.select(
        formats.texts(chosen["selector"], palette.title).alias("Selector"),
        formats.texts(chosen["rate"], formats.rate).alias("Rows removed"),
        pl.col("answer").alias("Against its controls"),
        pl.col("difference").round(4).alias("Nats per token"),
        pl.col("low").round(4).alias("95% from"),
        pl.col("high").round(4).alias("to"),
        pl.col("p_holm").round(4).alias("p, Holm"),
        pl.col("depth_share").round(3).alias("Depth share"),
        pl.col("depth_share_low").round(3).alias("Share from"),
        pl.col("depth_share_high").round(3).alias("Share to"),
    )


PART = Part(
    show, ("specific",),
    "A selector can do well for a dull reason: it only knows which layers can spare rows. Its control takes as many "
    "rows from every layer, at random; where that costs as much, the selector knew depth and nothing more.",
)  # fmt: skip
