"""The tab of what a sweep measured beside NLL (`sweep --measures`), under the same edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import curves as curve_chart, formats, lines
from dashboard.show import selection, tools
from dashboard.state import sources

STEM = "sweep_measures"
NOTES = ("Error bars: standard error over windows or prompts; of random the standard deviation over its seeds.",)


def render(picked: sources.Source, points: pl.DataFrame, orders: Sequence[str]) -> pl.DataFrame:
    """The tab, at the selectors, orders and rates of `points`; returns what it shows. Errors: InputError where the run
    has no such table."""
    whole = picked.table(STEM)
    names = sorted(set(whole["measure"]))
    name = selection.switch("Measure", names, "curve_measure", default=names[0])
    of_measure = whole.filter(pl.col("measure") == name)
    shown = of_measure.join(points, how="semi", on=("selector", "order", "rate"))
    unit = str(of_measure["unit"][0])
    for order, column in zip(orders, st.columns(len(orders)), strict=True):
        heading, _ = curve_chart.ORDER_HEADINGS[order]
        with column:
            figure = lines.lines(
                over_seeds(shown.filter(order=order)), lines.Axis("rate", "rows removed", "share"),
                lines.Axis("value", f"{name}, {unit}"), heading=heading, error="error", hover=_hover,
            )  # fmt: skip
            tools.show(figure, f"measure-{name}-{order}")
    return shown


def over_seeds(table: pl.DataFrame) -> pl.DataFrame:
    """Mean over seeds; the error is then their standard deviation, otherwise the standard error."""
    spread = pl.when(pl.len() > 1).then(pl.col("value").std()).otherwise(pl.col("stderr").first())
    return table.group_by("selector", "rate", maintain_order=True).agg(
        pl.col("value").mean(), spread.alias("error"), pl.col("rows_removed").first()
    )


def _hover(row: dict[str, Any]) -> str:
    error = f" ± {row['error']:.4f}" if row["error"] is not None else ""
    return f"removed {formats.rate(row['rate'])} = {row['rows_removed']:,} rows<br>{row['value']:.4f}{error}"
