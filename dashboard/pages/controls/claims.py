"""Claims: every sentence that the tables support, with its number, control, test and tier of evidence."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import formats, palette
from dashboard.show import grid, selection
from dashboard.state import sources
from engine.studies.claims.ledger import TIERS, ledger, needed
from engine.studies.verdict import verdict_moves


def show(source: sources.Source) -> pl.DataFrame:
    """The ledger of the source's tables, made anew from them; returns what is shown."""
    table = ledger({stem: source.table(stem) for stem in needed() if source.has(stem)})
    st.caption(
        "Each sentence with its evidence. The kinds of evidence, the strongest first: "
        + "; ".join(f"**{name}**: {meaning}" for name, meaning in TIERS.items())
        + "."
    )
    _moves(source)
    if table.is_empty():
        st.info("These tables support no sentence of the ledger; run `selector-audit analyze MODEL all` on a model.")
        return table
    there = [name for name in TIERS if name in table["tier"]]
    tiers = selection.choose_several("Evidence", there, "claim_tiers")
    shown = table.filter(pl.col("tier").is_in(tiers))
    st.dataframe(
        shown.select(
            formats.texts(shown["selector"], palette.title).alias("Selector"),
            grid.told("claim").alias("Claim"),
            pl.col("tier").alias("Evidence"),
            pl.col("number").alias("Number"),
            pl.col("unit").alias("Unit"),
            grid.told("control").alias("Control"),
            grid.told("test").alias("Test"),
            pl.col("p").alias("p"),
        ),
        hide_index=True, alt="Claims, each with its evidence, number, control and test",
        column_config={"Number": st.column_config.NumberColumn(format="%.3g"),
                       "p": st.column_config.NumberColumn(format="%.2g")},
    )  # fmt: skip
    return shown


def _moves(source: sources.Source) -> None:
    """Which verdicts hang on where a limit was set."""
    if not source.has("verdict_moves"):
        return
    told = verdict_moves.sentences(source.table("verdict_moves"), palette.title)
    with st.expander("What becomes of the verdicts when a limit moves?"):
        st.markdown("\n".join(f"- {one}" for one in told))
        st.caption("One limit at a time, to a laxer and to a stricter value; two together may change more.")
