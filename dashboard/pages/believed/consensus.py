"""Controls: what else could explain Consensus-2's result, each beside references of the same size."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import controls as controls_chart, formats
from dashboard.charts.findings import controls as findings
from dashboard.show import layout, selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source
from engine.stats.blocks import has_blocks
from engine.studies.estimate_words import ControlAnswer, control_answers

ORDERS = ("LeRF", "MoRF")
_FOUR_DIGITS = st.column_config.NumberColumn(format="%.4f")
Answers = tuple[dict[str, ControlAnswer], bool]  # by control; whether the errors are over blocks of windows
WHAT = {
    "lrp_layer_matched": "as many rows as LRP's mask in every layer, drawn at random: was it only the depth?",
    "ig_layer_matched": "the same with IG's counts",
    "rank_randomised": "LRP's ranks averaged with shuffled ranks of IG: is IG's part needed?",
    "intersection": "only the rows in both masks, LRP's and IG's",
    "veto_lrp": "LRP's mask without the rows that IG takes too",
    "veto_ig": "IG's mask without the rows that LRP takes too",
    "random": "rows drawn at random from the whole model",
}


def show(source: Source) -> Drawn:
    """Every control beside references of its size; folded, the differences and where Consensus-2 takes its rows."""
    table = source.table("controls")
    with source.bar:
        named = selection.switch("Order", ORDERS, "control_order", default="LeRF")
        rate = selection.rate("Rows removed", sorted(set(table["rate"])), "control_rate", default=0.3, shared="rate")
    order = named.lower()
    chosen = table.filter(pl.col("order") == order, (pl.col("rate") - rate).abs() < 1e-9)
    if chosen.is_empty():
        st.info("Nothing was measured in this order at this rate; choose another.")
        return Drawn(table)
    answers = _answers(source, order, rate)
    with source.hero():
        tools.show(
            controls_chart.dumbbells(chosen), f"controls-{order}", key="dumbbells",
            finding=_finding(chosen, answers, f"{named} at {formats.rate(rate)}"),
            below="each control and references with as many rows", hero=True,
        )  # fmt: skip
    tools.say_not_finite(chosen["nll"])
    if chosen["rows_removed"].null_count() == chosen.height:
        st.caption(
            "Published: the paper does not print how many rows each control removes, nor references of the same "
            "size. Rows of both, and of one without the other's, are fewer than the rate says, so that a low "
            "perplexity of theirs is no evidence by itself."
        )
    return Drawn(chosen, lambda: _more(source, answers))


def _more(source: Source, answers: Answers | None) -> None:
    for control in controls_chart.in_control_order(list(WHAT)):
        st.markdown(f"**{controls_chart.control_title(control)}**: {WHAT[control]}")
    if answers is not None:
        _told(*answers)
    with layout.told():
        _rank_distribution(source.table("rank_distribution").sort("rate"))


def _rank_distribution(table: pl.DataFrame) -> None:
    """Of Consensus-2's mask: rows that both methods' masks hold, one, or neither."""
    told = findings.rank_distribution(table, 0.3)
    tools.show(controls_chart.rank_shares(table), "rank-distribution", key="rank-shares", finding=told)
    st.caption(
        "A row that is in neither method's mask was raised by the mean of two middling ranks. The larger that part, "
        "the less Consensus-2 is an agreement of the two."
    )


def _answers(source: Source, order: str, rate: float) -> Answers | None:
    """Does a control beat Consensus-2 at equal size? None where no differences were measured."""
    differences = source.optional("control_differences")
    if differences is None:
        return None
    differences = differences.filter(pl.col("order") == order, (pl.col("rate") - rate).abs() < 1e-9)
    found = {answer.control: answer for answer in control_answers(differences, source.optional("draw_sweep"))}
    return (found, has_blocks(differences)) if found else None


def _finding(chosen: pl.DataFrame, answers: Answers | None, when: str) -> str:
    if answers is None:
        return findings.as_measured(chosen, f"under {when}")
    return findings.at_equal_size(answers[0], when)


def _told(answers: dict[str, ControlAnswer], blocks: bool) -> None:
    """The answers in words, with intervals."""
    layout.section("Does a control beat Consensus-2 at equal size?")
    if not blocks:
        st.caption(
            "Errors take evaluation windows as independent, which makes them too small; "
            "`selector-audit analyze MODEL controls` measures them over blocks of windows."
        )
    rows = [
        {
            "Control": controls_chart.control_title(name),
            "Rows": answers[name].rows_removed,
            "At equal size": answers[name].answer,
            "Against the full rate": answers[name].at_rate or "the same",
            "Difference (nats)": answers[name].difference.value,
            "Standard error": answers[name].difference.stderr,
            "95% from": answers[name].difference.low,
            "to": answers[name].difference.high,
            "In words": answers[name].sentence,
        }
        for name in controls_chart.in_control_order(list(answers))
    ]
    st.dataframe(
        pl.DataFrame(rows),
        hide_index=True,
        column_config={
            "Rows": st.column_config.NumberColumn(format="localized"),
            **dict.fromkeys(("Difference (nats)", "Standard error", "95% from", "to"), _FOUR_DIGITS),
        },
    )


PART = Part(
    show, ("controls", "rank_distribution"),
    "What else could explain a good result: fewer rows, the right depth, one method alone? It is worth as much as the "
    "controls that it beats.",
)  # fmt: skip
