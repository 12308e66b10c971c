"""Dangerous groups: removed rows of one block's attention or MLP that break the model on their own."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import formats, groups, palette
from dashboard.charts.findings import controls as findings
from dashboard.show import tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source

Row = dict[str, Any]
NOT_COMPARED = "Here no random groups were measured, so that none of these groups can be called dangerous."


def show(source: Source) -> Drawn:
    """Shares of the masks that lie in such groups; folded, group by group."""
    summary = source.table("dangerous_summary")
    rate = formats.rate(summary["rate"][0])
    compared = "confirmed_share" in summary.columns
    columns = [("share", "above the limit")]
    if compared:
        columns.insert(0, ("confirmed_share", "dangerous: more harm than random groups"))
    figure = groups.selector_bars(
        summary, columns, heading="Rows in dangerous groups" if compared else "Rows in groups above the limit",
        below=f"LeRF masks at {rate}", title="share of the mask's rows", tickformat=".3~%",
        text=lambda value: f"{value:.1%}", hover=_summary_hover,
    )  # fmt: skip
    told = findings.dangerous(
        summary,
        "confirmed_share" if compared else "share",
        "dangerous groups" if compared else "groups above the limit",
    )
    with source.hero():
        tools.show(figure, "dangerous-share", key="dangerous-share", finding=told, hero=True)
    st.caption(
        "A group is the removed rows of one block's attention or MLP; above the limit, removing it alone more than "
        "doubles the perplexity. That may be true of any rows there. It is called dangerous if it also does more harm "
        "than random groups of as many rows of the same place (Holm over all groups): then the selector called "
        "unimportant what is not. " + ("" if compared else NOT_COMPARED)
    )
    if source.published:
        st.info("The paper printed no perplexities of single groups.")
        return Drawn(summary)
    table = source.table("dangerous")
    return Drawn(table, lambda: _groups(table))


def _groups(table: pl.DataFrame) -> None:
    """Every group above the limit, the worst first."""
    bad = table.filter("dangerous").sort("nll", descending=True, maintain_order=True)
    columns = {"block": "Block", "sublayer": "Sublayer", "rows": "Rows"}
    shown = bad.select(
        formats.texts(bad["selector"], palette.title).alias("Selector"),
        *(pl.col(name).alias(title) for name, title in columns.items()),
        formats.texts(bad["nll"], formats.perplexity).alias("Perplexity alone"),
        *(pl.col("confirmed").alias("More harm than random groups") for _ in {"confirmed"} & set(table.columns)),
    )
    st.dataframe(shown, hide_index=True, alt="Groups above the limit, each with its perplexity when it goes alone")


def _summary_hover(row: Row) -> str:
    lines = [f"{row['dangerous_groups']} of {row['groups']} groups are above the limit"]
    if row.get("confirmed_groups") is not None:
        lines.insert(0, f"{row['confirmed_groups']} do more harm than random groups of their size")
    if row["rows"] is not None:
        of = f" of {row['masked_rows']:,}" if row["masked_rows"] is not None else ""
        lines.append(f"they hold {row['rows']:,}{of} removed rows")
    return "<br>".join(lines)


PART = Part(show, ("dangerous_summary",))
