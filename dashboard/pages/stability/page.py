"""Stability: how little calibration text changes a selector, and that this does not make it right."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import formats, lines as lines_chart, palette, stability
from dashboard.charts.findings import quadrants as findings
from dashboard.charts.lines import Axis
from dashboard.show import layout, selection, tools
from dashboard.state import sources
from engine.stats.limits import Thresholds

HOW_TO_READ = (
    "First: scores from draws of calibration text that share no window, against each other; 1 means that another text "
    "gives the same. Then the paper's nested sizes, which share windows and so look more stable. Last: a selector at "
    "the bottom right gives the same answer every time, and the answer is wrong."
)
LINE = "Does another calibration text give the same masks? To be stable is not to be right."
SIZE = Axis("size", "calibration windows", "category")
MEASURES = {"spearman": "Spearman", "jaccard": "Jaccard"}
DRAWN = {"spearman": "draw_spearman", "jaccard": "draw_jaccard"}


def render() -> None:
    """The page."""
    source = sources.pick(layout.heading("Stability", LINE), ("stability", "draws", "verdicts"))
    if source is None:
        return
    table = None
    disjoint = not source.published  # the paper has nested sizes only
    if disjoint:
        with layout.told():
            _disjoint(source)
    with layout.told():
        table = source.table("stability")
        if disjoint:
            layout.section("Nested sizes")
        _convergence(source, table, first=not disjoint)
    layout.how_to_read(HOW_TO_READ)
    with layout.told():
        _quadrant(source.table("verdicts"), source.published)
    tools.end(table, f"stability-{tools.file_name(source.model)}", *_notes(source), *source.provenance)


def _disjoint(source: sources.Source) -> None:
    """Ranges over all pairs of disjoint draws, with the verdicts' limits."""
    table = source.table("draws")
    limits = Thresholds()
    rates = sorted(set(table["rate"]))
    rate = min(rates, key=lambda one: abs(one - limits.rate))
    chosen = table.filter(pl.col("rate") == rate)
    at = formats.rate(rate)
    figure = stability.between_draws(chosen, limits.jaccard, heading=f"Masks at {at} from disjoint calibration text")
    with source.hero():
        tools.show(
            figure, "disjoint-draws", finding=findings.between_draws(chosen, limits.jaccard),
            below=f"LeRF masks at {at} from disjoint calibration text; further right: more alike", hero=True,
        )  # fmt: skip
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


def _convergence(source: sources.Source, table: pl.DataFrame, *, first: bool) -> None:
    """first: these are the page's first figures, and their settings stand in its bar."""
    available = palette.in_order(table["selector"].unique().to_list())
    rates = sorted(set(table["rate"].drop_nulls()))
    with source.bar if first else st.container():
        rate = selection.rate("Rows removed", rates, "stability_rate", default=0.3, shared="rate")
    with source.drawer() if first else st.container():
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    chosen = table.filter(pl.col("selector").is_in(selectors), (pl.col("rate") - rate).abs() < 1e-9)
    if chosen.is_empty():
        st.info("Nothing is chosen: choose at least one selector.")
        return
    at = formats.rate(rate)
    panels = (
        (Axis("spearman", "Spearman"), "Spearman of the scores", "against those from all windows"),
        (Axis("jaccard", "Jaccard"), f"Jaccard of LeRF masks at {at}", "against the mask from all windows"),
        (Axis("nll", "perplexity", "perplexity"), f"LeRF perplexity at {at}", "low is good"),
    )
    with source.hero() if first else st.container():
        places = list(st.columns(2))
    places.append(st.container())
    for number, (place, (axis, heading, below)) in enumerate(zip(places, panels, strict=True)):
        with place:
            figure = lines_chart.lines(chosen, SIZE, axis, heading=heading, below=below, hover=_hover)
            what = f"the masks' Jaccard at {at}" if axis.column == "jaccard" else axis.title
            told = findings.less_text(chosen, axis.column, what)
            tools.show(
                figure, f"stability-{axis.column}", finding=told, below=f"{heading}, {below}",
                hero=first and number < 2,
            )  # fmt: skip


def _hover(row: dict[str, Any]) -> str:
    lines = [f"{row['size']} of {row['reference_size']} windows"]
    lines += [f"{name} {row[column]:.4f}" for column, name in MEASURES.items() if row[column] is not None]
    if row["nll"] is not None:
        lines.append(f"LeRF perplexity {formats.perplexity(row['nll'])} (NLL {row['nll']:.4f})")
    return "<br>".join(lines)


def _quadrant(verdicts: pl.DataFrame, published: bool) -> None:
    layout.section("Stable is not valid")
    measure = selection.switch(
        "Stability by", tuple(MEASURES), "measure", default="jaccard", title=MEASURES.__getitem__
    )
    limits = Thresholds()
    stable_from = limits.spearman if measure == "spearman" else limits.jaccard
    drawn = verdicts[DRAWN[measure]].is_not_null().any()  # else there are nested sizes only
    figure = stability.quadrant(verdicts, DRAWN[measure] if drawn else measure, stable_from, limits.log_gap)
    named = verdicts.filter(pl.col("stable_but_invalid").fill_null(False))["selector"].to_list()
    inside = ", ".join(palette.title(name) for name in palette.in_order(named)) or "none"
    tools.show(figure, "stable-but-invalid", finding=findings.judged(verdicts))
    if published:
        st.caption(
            "Published: stability from 8 against 128 windows, validity at 30%. The dotted lines are this software's "
            "limits, made for half of the text against all of it; the paper names none."
        )
        return
    if not drawn:
        st.caption("Stability here is that of nested sizes, which judges nothing: disjoint draws were not measured.")
    st.caption(
        f"Judged stable but invalid: {inside}. Dotted lines are the default limits of verdicts: {MEASURES[measure]} "
        f"{stable_from:g}, log gap {limits.log_gap:g} nats, LeRF damage {limits.invalid_damage:.0%} of random's. "
        "A verdict also asks for clear differences and layer-matched controls; its reasons stand on Overview."
    )


def _notes(source: sources.Source) -> list[str]:
    if source.published:
        return ["The paper prints overlaps up to 64 windows and perplexities up to 128; 128 is the reference."]
    return ["Nested sizes: the first windows of the same text. Selectors that see no text are not in the figures."]
