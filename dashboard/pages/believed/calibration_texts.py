"""Stability and Second domain: does other calibration text give the same ranking and the same masks?"""

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import believed as chart, formats, lines as lines_chart, palette
from dashboard.charts.findings import belief_findings as findings
from dashboard.charts.lines import Axis
from dashboard.show import layout, selection, tools
from dashboard.state.page_parts import Drawn, Part
from dashboard.state.sources import Source
from engine.stats.limits import Thresholds
from engine.studies.claims.ledger import domain_sentence

SIZE = Axis("size", "calibration windows", "category")
MEASURES = {"spearman": "Spearman", "jaccard": "Jaccard"}
NESTED = "Nested sizes: the first windows of the same text. Selectors that see no text are not in the figures."
NO_DRAWS = (
    "{} no overlap of two draws of one and the same text. Two draws differ as well, so the figures above do not say "
    "whether the domain matters beyond the draw."
)


def show(source: Source) -> Drawn:
    """Disjoint draws, and folded the paper's nested sizes; of the paper these alone."""
    if source.published:
        table = _convergence(source)
        note = "The paper prints overlaps up to 64 windows and perplexities up to 128; 128 is the reference."
        return Drawn(table, notes=(note,))
    with layout.told():
        _disjoint(source)
    return Drawn(source.optional("stability"), lambda: _convergence(source), (NESTED,))


def _disjoint(source: Source) -> None:
    """Ranges over all pairs of disjoint draws, with the verdicts' limits."""
    table = source.table("draws")
    limits = Thresholds()
    rate = min(sorted(set(table["rate"])), key=lambda one: abs(one - limits.rate))
    chosen = table.filter(pl.col("rate") == rate)
    at = formats.rate(rate)
    figure = chart.between_draws(chosen, limits.jaccard, heading=f"Masks at {at} from disjoint calibration text")
    below = f"LeRF masks at {at} from disjoint calibration text; further right: more alike"
    source.show(figure, "disjoint-draws", finding=findings.between_draws(chosen, limits.jaccard), below=below)
    drawn, said = chosen.filter(pl.col("draw_size").is_not_null()), list[str]()
    for first in drawn.head(1).iter_rows(named=True):
        said.append(
            f"{first['calibration_draws']} draws of {first['draw_size']} consecutive windows, none in two of them."
        )
        if first["draw_size"] < first["size_wanted"] or first["calibration_draws"] < limits.draws:
            said.append(
                f"The text has {first['windows_available']} windows, too few for {limits.draws} draws of "
                f"{first['size_wanted']}, so that the draws are smaller."
            )
    for own in chosen.filter(pl.col("draw_size").is_null()).iter_rows(named=True):
        said.append(f"{palette.title(own['selector'])}: {own['calibration_draws']} files, a draw each.")
    said.append(
        f"Bars: least and greatest of all pairs. The verdicts ask for Jaccard {limits.jaccard:g} and Spearman "
        f"{limits.spearman:g} in the mean."
    )
    st.caption(" ".join(said))


def _convergence(source: Source) -> pl.DataFrame:
    """The table of nested sizes, drawn; of the paper as the part's first figures, with their settings in its bar."""
    first, table = source.published, source.table("stability")
    if not first:
        layout.section("Nested sizes")
    available = palette.in_order(table["selector"])
    with source.bar if first else st.container():
        rate = selection.rate(table["rate"].drop_nulls(), "stability_rate")
    with source.drawer() if first else st.container():
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    chosen = table.filter(pl.col("selector").is_in(selectors), (pl.col("rate") - rate).abs() < 1e-9)
    if chosen.is_empty():
        st.info("Nothing is chosen: choose at least one selector.")
        return table
    at = formats.rate(rate)
    panels = (
        (Axis("spearman", "Spearman"), "Spearman of the scores", "against those from all windows"),
        (Axis("jaccard", "Jaccard"), f"Jaccard of LeRF masks at {at}", "against the mask from all windows"),
        (Axis("nll", "perplexity", "perplexity"), f"LeRF perplexity at {at}", "low is good"),
    )
    places = [*(source.hero() if first else st).columns(2), st.container()]
    for number, (place, (axis, heading, below)) in enumerate(zip(places, panels, strict=True)):
        with place:
            figure = lines_chart.lines(chosen, SIZE, axis, heading=heading, below=below, hover=_hover)
            what = f"the masks' Jaccard at {at}" if axis.column == "jaccard" else axis.title
            sentence = findings.less_text(chosen, axis.column, what)
            tools.show(
                figure, f"stability-{axis.column}", finding=sentence, below=f"{heading}, {below}",
                hero=first and number < 2,
            )  # fmt: skip
    return table


def _hover(row: dict[str, Any]) -> str:
    lines = [f"{row['size']} of {row['reference_size']} windows", *_measured(row)]
    if row["nll"] is not None:
        lines.append(f"LeRF perplexity {formats.perplexity(row['nll'])} (NLL {row['nll']:.4f})")
    return "<br>".join(lines)


def _measured(row: dict[str, Any]) -> list[str]:
    return [f"{name} {row[column]:.4f}" for column, name in MEASURES.items() if row[column] is not None]


def domain(source: Source) -> Drawn:
    """The same selectors calibrated on another text."""
    table = source.table("domain")
    first, second = table["corpus_a"][0], table["corpus_b"][0]
    rate = selection.rate(table["rate"], "domain_rate", place=source.bar)
    chosen = table.filter((pl.col("rate") - rate).abs() < 1e-9)
    left, right = source.hero().columns(2)
    with left:
        figure = chart.selector_bars(
            chosen, [("spearman", "Spearman of the scores"), ("jaccard", f"Jaccard of masks at {formats.rate(rate)}")],
            heading="How alike the two calibrations are", below="1 is the same ranking, the same mask",
            title="agreement", text=lambda value: f"{value:.3f}", hover=lambda row: "<br>".join(_measured(row)),
            top=1.0,
        )  # fmt: skip
        sentence = findings.two_texts(chosen, rate)
        tools.show(figure, "domain-agreement", key="domain-agreement", finding=sentence, hero=True)
    with right:
        figure, sentence = chart.two_corpora(chosen, (first, second)), findings.two_costs(chosen)
        tools.show(figure, "domain-perplexity", key="domain-perplexity", finding=sentence, hero=True)
    tools.say_not_finite(chosen["nll_a"], chosen["nll_b"])
    layout.section("Is it the domain, or the draw?")
    if source.has("domain_draws"):
        _domain_draws(source.table("domain_draws"), rate)
    else:
        st.info(NO_DRAWS.format("The paper prints" if source.published else "This folder holds"))
    return Drawn(chosen)


def _domain_draws(table: pl.DataFrame, rate: float) -> None:
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


STABILITY = Part(
    show, ("stability", "draws"),
    "Scores from draws of calibration text that share no window, against each other; 1 means that another text gives "
    "the same. The paper's nested sizes share windows and so look more stable.",
)  # fmt: skip
DOMAIN = Part(domain, ("domain",), "Each selector reads two texts in turn; both masks are measured on the same text.")
