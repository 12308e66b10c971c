"""Verdict: stability against validity, and every sentence that the tables support, with its evidence."""

import polars as pl
import streamlit as st

from dashboard.charts import believed as chart, formats, palette
from dashboard.charts.findings import believed as findings
from dashboard.show import layout, selection, tables, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source
from engine.stats.limits import Thresholds
from engine.studies.claims.ledger import TIERS, ledger, needed
from engine.studies.verdict import verdict_moves

MEASURES = {"spearman": "Spearman", "jaccard": "Jaccard"}
DRAWN = {"spearman": "draw_spearman", "jaccard": "draw_jaccard"}


def show(source: Source) -> Drawn:
    """The quadrant, and the ledger of the source's tables, made anew from them; returns the claims that are shown."""
    with layout.told():
        _quadrant(source, source.table("verdicts"))
    table = ledger({stem: source.table(stem) for stem in needed() if source.has(stem)})
    if table.is_empty():
        st.info("These tables support no sentence of the ledger; run `selector-audit analyze MODEL all` on a model.")
        return Drawn(table, lambda: _more(source))
    there = [name for name in TIERS if name in table["tier"]]
    tiers = selection.choose_several("Evidence", there, "claim_tiers")
    shown = table.filter(pl.col("tier").is_in(tiers))
    st.dataframe(
        shown.select(
            formats.texts(shown["selector"], palette.title).alias("Selector"),
            tables.told("claim").alias("Claim"),
            pl.col("tier").alias("Evidence"),
            pl.col("number").alias("Number"),
            pl.col("unit").alias("Unit"),
            tables.told("control").alias("Control"),
            tables.told("test").alias("Test"),
            pl.col("p").alias("p"),
        ),
        hide_index=True, alt="Claims, each with its evidence, number, control and test",
        column_config={"Number": st.column_config.NumberColumn(format="%.3g"),
                       "p": st.column_config.NumberColumn(format="%.2g")},
    )  # fmt: skip
    return Drawn(shown, lambda: _more(source))


def _quadrant(source: Source, verdicts: pl.DataFrame) -> None:
    with source.bar:
        measure = selection.switch(
            "Stability by", tuple(MEASURES), "measure", default="jaccard", title=MEASURES.__getitem__
        )
    limits = Thresholds()
    stable_from = limits.spearman if measure == "spearman" else limits.jaccard
    drawn = verdicts[DRAWN[measure]].is_not_null().any()  # else there are nested sizes only
    draws = source.table("draws") if source.has("draws") else None
    figure = chart.quadrant(verdicts, DRAWN[measure] if drawn else measure, stable_from, limits, draws)
    with source.hero():
        tools.show(figure, "stable-but-invalid", finding=findings.judged(verdicts), hero=True)
    if source.published:
        st.caption(
            "Published: stability from 8 against 128 windows, validity at 30%. The dotted lines are this software's "
            "limits, made for half of the text against all of it; the paper names none."
        )
        return
    nested = "" if drawn else "Stability here is that of nested sizes, which judges nothing: no draws were measured. "
    named = verdicts.filter(pl.col("stable_but_invalid").fill_null(False))["selector"].to_list()
    inside = ", ".join(palette.title(name) for name in palette.in_order(named)) or "none"
    st.caption(
        f"{nested}Judged stable but invalid: {inside}. Dotted lines are the default limits of verdicts: "
        f"{MEASURES[measure]} {stable_from:g}, log gap {limits.log_gap:g} nats, {1 - limits.invalid_damage:.0%} of "
        f"random rows' harm avoided. A verdict also asks for clear differences and beaten controls."
    )


def _more(source: Source) -> None:
    """What the kinds of evidence are, and which verdicts hang on where a limit was set."""
    kinds = "; ".join(f"**{name}**: {meaning}" for name, meaning in TIERS.items())
    st.caption(f"The kinds of evidence, the strongest first: {kinds}.")
    if source.has("verdict_moves"):
        told = verdict_moves.sentences(source.table("verdict_moves"), palette.title)
        st.subheader("What becomes of the verdicts when a limit moves?", anchor=False)
        st.markdown("\n".join(f"- {one}" for one in told))
        st.caption("One limit at a time, to a laxer and to a stricter value; two together may change more.")


PART = Part(
    show, ("verdicts", *needed()),
    "To be stable is not to be right: a selector at the bottom right gives the same answer every time, and the answer "
    "is wrong. Below, each sentence that the tables support, with its evidence.",
)  # fmt: skip
