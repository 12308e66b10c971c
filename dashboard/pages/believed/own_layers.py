"""What else could explain a good result: fewer rows, the right depth, one method alone, or rows of any mask.

Consensus-2's controls beside references of the same size, every selector against random rows of its own layers, and
removed rows of one block's attention or MLP that break the model on their own."""

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import believed as chart, formats, palette
from dashboard.charts.findings import belief_findings as findings
from dashboard.show import layout, selection, tools
from dashboard.state.page_parts import Drawn, Part
from dashboard.state.sources import Source
from engine.stats.blocks import has_blocks
from engine.studies.estimate_words import ControlAnswer, control_answers
from engine.studies.verdict.judged_selectors import DECIDED, with_draws

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
NOT_COMPARED = "Here no random groups were measured, so that none of these groups can be called dangerous."


def _consensus(source: Source) -> Drawn:
    """Every control beside references of its size; folded, the differences and where Consensus-2 takes its rows."""
    table = source.table("controls")
    with source.bar:
        named = selection.switch("Order", ORDERS, "control_order", default="LeRF")
        rate = selection.rate(table["rate"], "control_rate")
    order = named.lower()
    chosen = table.filter(pl.col("order") == order, (pl.col("rate") - rate).abs() < 1e-9)
    if chosen.is_empty():
        st.info("Nothing was measured in this order at this rate; choose another.")
        return Drawn(table)
    answers, when = _answers(source, order, rate), f"{named} at {formats.rate(rate)}"
    measured = findings.as_measured(chosen, f"under {when}") if answers is None else ""
    source.show(
        chart.dumbbells(chosen), f"controls-{order}", key="dumbbells",
        finding=findings.at_equal_size(answers[0], when) if answers else measured,
        below="each control and references with as many rows",
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
    for control in chart.in_control_order(list(WHAT)):
        st.markdown(f"**{chart.control_title(control)}**: {WHAT[control]}")
    if answers is not None:
        _told(*answers)
    with layout.told():
        table = source.table("rank_distribution").sort("rate")
        sentence = findings.rank_distribution(table, 0.3)
        tools.show(chart.rank_shares(table), "rank-distribution", key="rank-shares", finding=sentence)
        st.caption(
            "A row that is in neither method's mask was raised by the mean of two middling ranks. The larger that "
            "part, the less Consensus-2 is an agreement of the two."
        )


def _answers(source: Source, order: str, rate: float) -> Answers | None:
    """Does a control beat Consensus-2 at equal size? None where no differences were measured."""
    differences = source.optional("control_differences")
    if differences is None:
        return None
    differences = differences.filter(pl.col("order") == order, (pl.col("rate") - rate).abs() < 1e-9)
    answers = {answer.control: answer for answer in control_answers(differences, source.optional("draw_sweep"))}
    return (answers, has_blocks(differences)) if answers else None


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
            "Control": chart.control_title(name), "Rows": one.rows_removed, "At equal size": one.answer,
            "Against the full rate": one.at_rate or "the same", "Difference (nats)": one.difference.value,
            "Standard error": one.difference.stderr, "95% from": one.difference.low, "to": one.difference.high,
            "In words": one.sentence,
        }
        for name, one in ((name, answers[name]) for name in chart.in_control_order(list(answers)))
    ]  # fmt: skip
    digits = dict.fromkeys(("Difference (nats)", "Standard error", "95% from", "to"), _FOUR_DIGITS)
    config = {"Rows": st.column_config.NumberColumn(format="localized"), **digits}
    st.dataframe(pl.DataFrame(rows), hide_index=True, column_config=config)


CONSENSUS = Part(
    _consensus, ("controls", "rank_distribution"),
    "What else could explain a good result: fewer rows, the right depth, one method alone? It is worth as much as the "
    "controls that it beats.",
)  # fmt: skip


def _own_layers(source: Source) -> Drawn:
    """Differences to the own controls, and the share that depths explain; folded, the numbers."""
    table = with_draws(source.table("specific"), source.optional("draw_sweep"))
    with source.bar:
        order = selection.switch("Order", ORDERS, "specific_order", default="LeRF").lower()
        chosen = table.filter(pl.col("order") == order)
        if DECIDED not in table.columns:  # measured at the plan's rates, whatever they do to the model
            rate = selection.rate(table["rate"], "specific_rate")
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
    left, right = source.hero().columns(2)
    with left:
        sentence = findings.own_depths(chosen, order)
        figure = chart.own_depths(chosen, order)
        tools.show(figure, f"specific-{order}", key="specific-differences", finding=sentence, hero=True)
    with right:
        sentence = findings.depth_share(chosen)
        tools.show(chart.depth_shares(chosen), f"depth-share-{order}", key="depth-share", finding=sentence, hero=True)
    tools.say_not_finite(chosen["difference"])
    if missing := chosen["depth_share"].null_count():
        st.caption(f"{missing} selector(s) have no clear advantage over random, so no share of it.")
    return Drawn(chosen, lambda: _depth_numbers(chosen))


def _depth_numbers(chosen: pl.DataFrame) -> None:
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
    st.dataframe(
        _depth_table(chosen), hide_index=True, alt="Per selector: the difference, its interval, and the depth share"
    )


def _depth_table(chosen: pl.DataFrame) -> pl.DataFrame:
    chosen = palette.sorted_by_selector(chosen)
    numbers = {
        "difference": "Nats per token", "low": "95% from", "high": "to", "p_holm": "p, Holm",
        "depth_share": "Depth share", "depth_share_low": "Share from", "depth_share_high": "Share to",
    }  # fmt: skip
    return chosen.select(
        formats.texts(chosen["selector"], palette.title).alias("Selector"),
        formats.texts(chosen["rate"], formats.rate).alias("Rows removed"),
        pl.col("answer").alias("Against its controls"),
        *(pl.col(name).round(3 if "share" in name else 4).alias(title) for name, title in numbers.items()),
    )


OWN_LAYERS = Part(
    _own_layers, ("specific",),
    "A selector can do well for a dull reason: it only knows which layers can spare rows. Its control takes as many "
    "rows from every layer, at random; where that costs as much, the selector knew depth and nothing more.",
)  # fmt: skip


def _dangerous_groups(source: Source) -> Drawn:
    """Shares of the masks that lie in such groups; folded, group by group."""
    summary = source.table("dangerous_summary")
    rate = formats.rate(summary["rate"][0])
    compared = "confirmed_share" in summary.columns
    columns = [("share", "above the limit")]
    if compared:
        columns.insert(0, ("confirmed_share", "dangerous: more harm than random groups"))
    what = "dangerous groups" if compared else "groups above the limit"
    figure = chart.selector_bars(
        summary, columns, heading=f"Rows in {what}", below=f"LeRF masks at {rate}", title="share of the mask's rows",
        tickformat=".3~%", text="{:.1%}".format, hover=_summary_hover,
    )  # fmt: skip
    sentence = findings.dangerous(summary, columns[0][0], what)
    source.show(figure, "dangerous-share", key="dangerous-share", finding=sentence)
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


def _summary_hover(row: dict[str, Any]) -> str:
    lines = [f"{row['dangerous_groups']} of {row['groups']} groups are above the limit"]
    if row.get("confirmed_groups") is not None:
        lines.insert(0, f"{row['confirmed_groups']} do more harm than random groups of their size")
    if row["rows"] is not None:
        of = f" of {row['masked_rows']:,}" if row["masked_rows"] is not None else ""
        lines.append(f"they hold {row['rows']:,}{of} removed rows")
    return "<br>".join(lines)


DANGEROUS_GROUPS = Part(_dangerous_groups, ("dangerous_summary",))
