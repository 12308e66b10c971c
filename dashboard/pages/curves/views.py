"""Views of Curves beside the curves: which differences between selectors are real, what a sweep measured beside NLL,
and the parts of a mask that do its harm. Each draws a picked source and returns the values that it shows.
Errors: InputError where the run has no such table."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import curves as curve_chart, differences as chart, formats, lines, palette, parts as parts_chart
from dashboard.charts.findings import curves as findings
from dashboard.charts.series import ORDER_TITLES
from dashboard.show import selection, tools
from dashboard.state.sources import Source
from engine.stats.table_estimates import has_blocks
from engine.studies.estimate_words import units_in_words

OF_DIFFERENCES = (
    "Many pairs are compared at once: p is adjusted by Holm over all of them, and what is told apart has at most .05."
)
OF_MEASURES = "Error bars: standard error over windows or prompts; of random the standard deviation over its seeds."
OF_PARTS = "Shares of several parts need not add up to 100%: parts that do harm only together, or each alone, exist."


def _errors_note(whole: pl.DataFrame, drawn: bool) -> str:
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


def differences(picked: Source) -> pl.DataFrame:
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
    st.caption(f"Told apart: p at most {chart.LEVEL:g} after Holm.{beyond} {_errors_note(whole, drawn is not None)}")
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


def measures(picked: Source, points: pl.DataFrame, orders: Sequence[str]) -> pl.DataFrame:
    """What `sweep --measures` measured at the selectors, orders and rates of `points`."""
    whole = picked.table("sweep_measures")
    names = sorted(set(whole["measure"]))
    name = selection.switch("Measure", names, "curve_measure", default=names[0])
    of_measure = whole.filter(pl.col("measure") == name)
    shown = of_measure.join(points, how="semi", on=("selector", "order", "rate"))
    unit = str(of_measure["unit"][0])
    # Of several seeds the mean; the error is then their standard deviation.
    spread = pl.when(pl.len() > 1).then(pl.col("value").std()).otherwise(pl.col("stderr").first())
    means = shown.group_by("order", "selector", "rate", maintain_order=True).agg(
        pl.col("value").mean(), spread.alias("error"), pl.col("rows_removed").first()
    )
    for order, column in zip(orders, st.columns(len(orders)), strict=True):
        heading, _ = curve_chart.ORDER_HEADINGS[order]
        with column:
            figure = lines.lines(
                means.filter(order=order), lines.Axis("rate", "rows removed", "share"),
                lines.Axis("value", f"{name}, {unit}"), heading=heading, error="error", hover=_hover,
            )  # fmt: skip
            tools.show(figure, f"measure-{name}-{order}")
    return shown


def _hover(row: dict[str, Any]) -> str:
    error = f" ± {row['error']:.4f}" if row["error"] is not None else ""
    return f"removed {formats.rate(row['rate'])} = {row['rows_removed']:,} rows<br>{row['value']:.4f}{error}"


def parts(picked: Source) -> pl.DataFrame:
    """The parts of one mask (`analyze MODEL parts`)."""
    table = picked.table("parts")
    with st.container(horizontal=True, gap="medium"):
        names = palette.in_order(table["selector"].to_list())
        name = selection.choose("Selector", names, "parts_selector", title=palette.title)
        orders = table["order"].unique(maintain_order=True).to_list()
        order = selection.switch("Order", orders, "parts_order", default=orders[0], title=ORDER_TITLES.__getitem__)
        rates: list[Any] = sorted(set(table["rate"]))
        rate = selection.switch("Rows removed", rates, "parts_rate", default=rates[0], title=formats.rate)
    shown = table.filter(selector=name, order=order, rate=rate)
    for part, column in zip(("projection", "block"), st.columns(2, gap="medium"), strict=True):
        lines = shown.filter(part=part)
        with column:
            if lines["restored"].null_count() == lines.height:
                st.info(f"This mask does no harm, so that no {part} can do it.")
                continue
            tools.show(parts_chart.restored(lines), f"parts-{part}", finding=parts_chart.finding(lines))
    return shown
