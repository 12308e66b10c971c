"""The other parts of the page Controls: rank distribution, dangerous groups, a second domain."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import controls, formats, groups, palette
from dashboard.charts.findings import controls as findings
from dashboard.show import layout, selection, tools
from dashboard.state import sources
from engine.studies.claims.audit_claims import domain_sentence

Row = dict[str, Any]


def four_digits() -> Any:
    """Column format of standard errors."""
    return st.column_config.NumberColumn(format="%.4f")


def say_not_finite(*values: pl.Series) -> None:
    """How many values have no mark, if there are any."""
    count = sum(len(column) - int(column.is_finite().sum()) for column in values)
    if count:
        st.caption(f"{count} value(s) are missing or not finite and have no mark.")


def rank_distribution(source: sources.Source) -> pl.DataFrame:
    """Of Consensus-2's mask: rows that both methods' masks hold, one, or neither."""
    table = source.table("rank_distribution").sort("rate")
    with source.hero():
        tools.show(
            controls.rank_shares(table), "rank-distribution", key="rank-shares",
            finding=findings.rank_distribution(table, 0.3), hero=True,
        )  # fmt: skip
    st.caption(
        "A row that is in neither method's mask was raised by the mean of two middling ranks. The larger that part, "
        "the less Consensus-2 is an agreement of the two."
    )
    return table


def dangerous(source: sources.Source) -> pl.DataFrame:
    """Groups of removed rows that break the model on their own."""
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
        return summary
    table = source.table("dangerous")
    available = palette.in_order(table["selector"].unique().to_list())
    chosen = selection.choose_several("Selectors", available, "dangerous_selectors", title=palette.title)
    table = table.filter(pl.col("selector").is_in(chosen))
    for column, (sublayer, title) in zip(st.columns(2), (("attention", "Attention"), ("mlp", "MLP")), strict=True):
        part = table.filter(pl.col("sublayer") == sublayer)
        if part.height:
            with column:
                tools.show(groups.groups(part, title), f"groups-{sublayer}")
    return table


NOT_COMPARED = "Here no random groups were measured, so that none of these groups can be called dangerous."


def _summary_hover(row: Row) -> str:
    lines = [f"{row['dangerous_groups']} of {row['groups']} groups are above the limit"]
    if row.get("confirmed_groups") is not None:
        lines.insert(0, f"{row['confirmed_groups']} do more harm than random groups of their size")
    if row["rows"] is not None:
        of = f" of {row['masked_rows']:,}" if row["masked_rows"] is not None else ""
        lines.append(f"they hold {row['rows']:,}{of} removed rows")
    return "<br>".join(lines)


def domain(source: sources.Source) -> pl.DataFrame:
    """The same selectors calibrated on another text."""
    table = source.table("domain")
    first, second = table["corpus_a"][0], table["corpus_b"][0]
    rates = sorted(set(table["rate"]))
    rate = selection.rate("Rows removed", rates, "domain_rate", default=0.3, place=source.bar, shared="rate")
    chosen = table.filter((pl.col("rate") - rate).abs() < 1e-9)
    with source.hero():
        left, right = st.columns(2)
    with left:
        figure = groups.selector_bars(
            chosen, [("spearman", "Spearman of the scores"), ("jaccard", f"Jaccard of masks at {formats.rate(rate)}")],
            heading="How alike the two calibrations are", below="1 is the same ranking, the same mask",
            title="agreement", text=lambda value: f"{value:.3f}", hover=_domain_hover, top=1.0,
        )  # fmt: skip
        told = findings.two_texts(chosen, rate)
        tools.show(figure, "domain-agreement", key="domain-agreement", finding=told, hero=True)
    with right:
        figure, told = groups.two_corpora(chosen, (first, second)), findings.two_costs(chosen)
        tools.show(figure, "domain-perplexity", key="domain-perplexity", finding=told, hero=True)
    say_not_finite(chosen["nll_a"], chosen["nll_b"])
    layout.section("Is it the domain, or the draw?")
    if source.has("domain_draws"):
        _draws(source.table("domain_draws"), rate)
    else:
        st.info(NO_DRAWS.format("The paper prints" if source.published else "This folder holds"))
    return chosen


NO_DRAWS = (
    "{} no overlap of two draws of one and the same text. Two draws differ as well, so the figures above do not say "
    "whether the domain matters beyond the draw."
)


def _draws(table: pl.DataFrame, rate: float) -> None:
    """The overlap of draws within a text and between the two texts, in words and numbers."""
    table = table.filter((pl.col("rate") - rate).abs() < 1e-9)
    if table.is_empty():
        st.info("No draws were compared at this rate: the texts are too short for them, or none were wanted.")
        return
    beyond = palette.in_order(table.filter(pl.col("beyond_draw"))["selector"].to_list())
    named = ", ".join(palette.title(name) for name in beyond)
    st.markdown(
        f"**Beyond the draw** the text matters for {named}." if named else "**Nothing is seen beyond the draw:** the "
        "masks of two texts overlap as two draws of one text do."
    )  # fmt: skip
    first = table.row(0, named=True)
    st.caption(
        f"{first['text_draws']} disjoint draws of {first['size']} windows of each text; p by all ways to label the "
        "draws, for all selectors and rates together. What is not seen may be there: fewer windows in a draw make "
        "draws differ more."
    )
    columns = {
        "jaccard_a": f"within {first['corpus_a']}", "jaccard_b": f"within {first['corpus_b']}",
        "jaccard_between": "between them", "drop": "the text adds", "p_family": "p",
    }  # fmt: skip
    shown = table.select(
        formats.texts(table["selector"], palette.title).alias("Selector"),
        *(pl.col(column).alias(title) for column, title in columns.items()),
        formats.texts(table.to_dicts(), domain_sentence).alias("In words"),
    )
    config = {title: st.column_config.NumberColumn(format="%.3f") for title in columns.values()}
    alt = "Per selector: overlap of masks from draws of one text and of two"
    st.dataframe(shown, hide_index=True, column_config=config, alt=alt)


def _domain_hover(row: Row) -> str:
    return "<br>".join(
        f"{name} {row[column]:.4f}"
        for column, name in (("spearman", "Spearman"), ("jaccard", "Jaccard"))
        if row[column] is not None
    )
