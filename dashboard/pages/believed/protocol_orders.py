"""Protocols: which orders of selectors hold whatever is done, to what, and how it is measured."""

import polars as pl
import streamlit as st

from dashboard.charts import believed as chart, palette
from dashboard.show import layout, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source
from engine.studies.protocols.protocol_claims import ALL, CONTESTED, OVERTURNED, UNDECIDED, UNOPPOSED, summary

_WORDS = {
    ALL: "holds under all", UNOPPOSED: "never turns around", CONTESTED: "perhaps turns around, not surely",
    OVERTURNED: "turns around under some", UNDECIDED: "no difference seen",
}  # fmt: skip


def show(source: Source) -> Drawn:
    """The orders of all pairs; folded, every claim. Returns the claims."""
    claims = source.table("protocols_claims")
    heading = chart.protocol_heading(claims)
    with source.hero():
        tools.show(chart.order_matrix(claims, heading), "protocols", key="protocol-order", finding=heading, hero=True)
    st.markdown(layout.plain(summary(claims)))
    return Drawn(claims, lambda: _more(source, claims))


def _more(source: Source, claims: pl.DataFrame) -> None:
    st.dataframe(_table(claims), hide_index=True, alt="Every pair of selectors: what the protocols say of their order")
    with layout.told():
        units = []
        for row in source.table("protocols_units").iter_rows(named=True):
            name = chart.UNITS.get(row["unit_kind"], row["unit_kind"]).lower()
            units.append(f"{row['unit_count']:,} {name}" + (f" ({row['units_why']})" if row["units_why"] else ""))
        st.caption(layout.plain(f"The model has {', '.join(units)}."))


def _table(claims: pl.DataFrame) -> pl.DataFrame:
    title = {name: palette.title(name) for name in {*claims["selector_a"], *claims["selector_b"]}}
    order = {word: place for place, word in enumerate(_WORDS)}
    return claims.sort(
        pl.col("claim_verdict").replace_strict(order, default=len(order)), "protocols_for", descending=[False, True],
        maintain_order=True,
    ).select(
        pl.concat_str(
            pl.col("selector_a").replace_strict(title, return_dtype=pl.String),
            pl.lit(" before "),
            pl.col("selector_b").replace_strict(title, return_dtype=pl.String),
        ).alias("Claim"),
        pl.col("claim_verdict").replace(_WORDS).alias("Verdict"),
        pl.col("protocols_for").alias("Protocols that agree"),
        pl.col("protocols_against").alias("The other way round"),
        pl.col("protocols_tied").alias("No difference"),
        pl.col("from_paper").alias("Paper's protocol says so"),
        pl.col("overturned_by").fill_null("").alias("The other way round under"),
    )  # fmt: skip


PART = Part(
    show, ("protocols_claims",),
    "A protocol is what is done to the chosen units (set to zero, to their mean, to what they say in another window), "
    "which units (rows, neurons, heads, experts), what is measured, in which order, at which rate. Each decides like a "
    "study of its own: paired over blocks of windows, corrected for all its pairs (Holm, 5%), else no difference is "
    "seen.",
)  # fmt: skip
