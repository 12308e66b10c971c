"""Overview, the page that opens first: what this is, the model at hand, the headline, where to go next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import polars as pl
import streamlit as st
from streamlit.navigation.page import Page

from dashboard.charts import budget, formats, headline, overview, palette
from dashboard.charts.findings import curves as curve_findings, quadrants as quadrant_findings
from dashboard.pages.overview import leaderboard, model_card, verdict_table, watch_it
from dashboard.show import layout, tools
from dashboard.state import offers, results, shipped, sources
from engine.records.errors import InputError

WHAT = (
    "An attribution score claims to know which rows of a language model matter. Selector Audit takes the claim at its "
    "word: it removes the rows that a score calls unimportant, or important, and measures what the model can still do. "
    "The same scores then choose the rows whose removal makes a model refuse, and controls show whether it was these "
    "rows or any rows."
)
HOW_TO_READ = (
    "Removing the rows that a good selector calls unimportant hardly raises the perplexity; a selector can give "
    "the same ranking every time and still be wrong about it."
)
LINE = "If it is, a model without the unimportant ones can still speak."
_BELOW = "further left is better"
_BELOW_OWN = "further left is better; the lower five lines: the paper's models"
_STEMS = (results.SWEEP, "stability", "verdicts", "budget")
_SAYS = {  # what a page is for, by its path
    "curves": "perplexity against removed rows, for every selector",
    "agreement": "which selectors choose the same rows",
    "depth": "where in the model the rows of a mask lie",
    "stability": "how much calibration text a ranking needs",
    "controls": "what random rows in the same places would have done",
    "downstream": "accuracy on tasks against removed rows",
    "refusal": "rows whose removal makes the model refuse",
    "live": "one prompt, answered before and after an edit",
    "rows": "single rows: their scores, the tokens they react to, a mask by hand",
    "learn": "a guided path for a class",
    "paper": "the published tables and where they disagree",
    "runs": "audit a model of your own, compare and keep runs",
    "methods": "what every number means",
}


def render(pages: Mapping[str, Sequence[Page]] | None = None) -> None:
    """The page. pages: the navigation's groups, to be linked at the end."""
    picked = sources.pick(layout.heading("Is the score right about the rows?", LINE), _STEMS)
    if picked is None:
        st.markdown(WHAT)
    else:
        _results(picked)
    _next(pages or {})


def _results(picked: sources.Source) -> None:
    curves: results.Curves | None = None
    watched = False
    with layout.told():
        curves = results.read_paper() if picked.run is None else results.read_run(picked.run)
    if curves is not None:
        with layout.told():
            watched = watch_it.show(picked, curves.frame.filter(pl.col("model") == picked.model))
    if watched:
        st.markdown(WHAT)
    above = st.container()  # filled last: the figures are what the browser needs most time for
    with st.container() if watched else picked.hero():
        pair = picked.published or picked.has("stability")
        left, right = st.columns(2, gap="medium") if pair else (st.container(), None)
    if not watched:
        st.markdown(WHAT)
    layout.how_to_read(HOW_TO_READ)
    shown: list[pl.DataFrame] = []
    with left, layout.told():
        if not picked.published and picked.has("budget"):
            shown.append(_budget(picked, hero=not watched))
        elif curves is not None:
            shown.append(_snapshot(picked, curves, hero=not watched))
    if right is None:
        picked.offer("stability")
    elif curves is not None:
        with right, layout.told():
            _scatter(picked, curves, hero=not watched)
    with above:
        _model(picked, curves)
    if not picked.published:  # the paper printed the numbers behind such verdicts, not the words
        with layout.told():
            verdict_table.show(picked)
    if curves is not None:
        with layout.told():
            leaderboard.show(offers.offers(picked.kind, curves, picked.run))
    origin = [curves.provenance] if curves is not None else []
    also = [] if picked.published else [results.read_paper().provenance]
    tools.end(
        shown[0] if shown else None, "snapshot", *_notes(picked), *dict.fromkeys([*origin, *picked.provenance, *also])
    )


def _budget(picked: sources.Source, *, hero: bool) -> pl.DataFrame:
    table = picked.table("budget")
    tools.show(
        budget.budgets(table),
        "budget",
        f"{budget.finding(table)}. {budget.WHAT}",
        finding=budget.finding(table),
        below=budget.WHAT,
        hero=hero,
    )
    return table


def _snapshot(picked: sources.Source, curves: results.Curves, *, hero: bool) -> pl.DataFrame:
    table = headline.snapshot(_beside(picked, curves))
    at = formats.rate(headline.RATE)
    alt = f"LeRF perplexity at {at} removed rows per selector, a line per model: "
    tools.show(
        overview.snapshot(table, _BELOW if picked.published else _BELOW_OWN),
        "snapshot",
        alt + ", ".join(table["label"].unique(maintain_order=True)) + ".",
        finding=curve_findings.harm(table.filter(pl.col("label") == table["label"][0]), "lerf", f"with {at} removed"),
        below=f"first row: {table['label'][0]}; {_BELOW if picked.published else _BELOW_OWN}",
        hero=hero,
    )
    return table


def _model(picked: sources.Source, curves: results.Curves | None) -> None:
    facts: list[model_card.Fact] = []
    story = model_card.RUN_STORY
    with layout.told():
        if picked.kind == sources.SHIPPED and shipped.model_is_there(shipped.DEMO):
            story = model_card.SHIPPED_STORY
            facts += model_card.shipped_facts()
        if picked.kind == shipped.TITLES[shipped.SMOLLM2]:
            story = model_card.PACKAGED_STORY
        if picked.published:
            story = model_card.PAPER_STORY
            facts += model_card.paper_facts(picked.model)
        else:
            facts += model_card.run_facts(picked.folder)
    if curves is not None:
        facts += model_card.perplexity_fact(curves.frame, picked.model)
    layout.section(f"The model at hand: {layout.plain(formats.model_title(picked.model))}")
    with st.container(horizontal=True):
        for fact in facts:
            st.metric(fact.name, layout.plain(fact.value), help=layout.plain(fact.exact) or None, width="content")
    st.markdown(story)


def _beside(picked: sources.Source, curves: results.Curves) -> dict[str, tuple[pl.DataFrame, str]]:
    """The picked model first, then those of the paper."""
    paper = results.read_paper()
    if picked.published:
        return {model: (paper.frame, model) for model in paper.models}
    own = formats.model_title(picked.model)
    rest = {f"{model} (paper)" if model == own else model: (paper.frame, model) for model in paper.models}
    return {own: (curves.frame, picked.model), **rest}


def _scatter(picked: sources.Source, curves: results.Curves, *, hero: bool) -> None:
    if picked.published:
        printed = picked.all_models("stability")["model"].unique(maintain_order=True).to_list()
        if picked.model not in printed:
            st.info(layout.plain(f"The paper printed a stability for {' and '.join(printed)} only."))
            return
    verdicts: pl.DataFrame | None = None
    with suppress(InputError):  # which the part below tells
        verdicts = None if picked.published else picked.table("verdicts")
    table = headline.scatter(curves.frame, picked.table("stability"), picked.model, verdicts)
    named = [f"{palette.title(row['selector'])} {row['verdict'] or row['quadrant']}" for row in table.to_dicts()]
    tools.show(
        overview.stability_validity(table),
        "stability-validity",
        f"Stability against validity for {formats.model_title(picked.model)}: {', '.join(named)}.",
        finding=quadrant_findings.headline(table, headline.STABLE_VALID, headline.STABLE_INVALID),
        below="right is stable, up is valid",
        hero=hero,
    )


def _notes(picked: sources.Source) -> list[str]:
    notes = []
    if not picked.published:
        notes.append("Models differ in size, text and vocabulary: compare the order of the selectors, not the heights.")
    notes.append("Random and Magnitude see no calibration text, so they have no stability and no mark there.")
    return notes


def _next(pages: Mapping[str, Sequence[Page]]) -> None:
    groups = {group: [page for page in inside if page.url_path in _SAYS] for group, inside in pages.items()}
    groups = {group: inside for group, inside in groups.items() if inside}
    if not groups:
        return
    layout.section("Where to go next")
    for inside in groups.values():
        for page in inside:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.page_link(page)
                st.caption(_SAYS[page.url_path])
