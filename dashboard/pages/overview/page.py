"""Overview, the page that opens first: what this is, the model at hand, the headline."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import budget, formats, overview
from dashboard.charts.findings import curves as curve_findings
from dashboard.pages.overview import leaderboard, model_card, verdict_table, watch_it
from dashboard.show import layout, stage, tools
from dashboard.state import offers, results, shipped, sources

WHAT = (
    "An attribution score claims to know which rows of a language model matter. Selector Audit takes the claim at its "
    "word: it removes the rows that a score calls unimportant, or important, and measures what the model can still do. "
    "The same scores then choose the rows whose removal makes a model refuse, and controls show whether it was these "
    "rows or any rows."
)
HOW_TO_READ = (
    "Removing the rows that a good selector calls unimportant hardly raises the perplexity. (A selector can give the "
    "same ranking every time and still be wrong about it: see Can it be believed.)"
)
TITLE = "Which importance scores can you trust?"
LINE = "Can the model speak without what a score calls unimportant?"
BELOW = "small is good; colours by rank within a model"
_STEMS = (results.SWEEP, "verdicts", "budget")


def render() -> None:
    """The page."""
    picked = sources.pick(layout.heading(TITLE, LINE), _STEMS)
    if picked is None:
        st.markdown(WHAT)
    else:
        _results(picked)


def _results(picked: sources.Source) -> None:
    curves: results.Curves | None = None
    watched = False
    answered = picked.stage.container()
    with layout.told():
        curves = results.read_paper() if picked.run is None else results.read_run(picked.run)
    if curves is not None:
        with layout.told():
            watched = watch_it.show(picked, curves.frame.filter(pl.col("model") == picked.model))
    if watched:
        st.markdown(WHAT)
    above = st.container()  # filled last: the figures are what the browser needs most time for
    first = st.container() if watched else picked.hero()
    if not watched:
        st.markdown(WHAT)
    layout.how_to_read(HOW_TO_READ)
    shown: list[pl.DataFrame] = []
    with first, layout.told():
        if not picked.published and picked.has("budget"):
            shown.append(_budget(picked, hero=not watched))
        elif curves is not None:
            shown.append(_snapshot(picked, curves, hero=not watched))
    with above:
        _model(picked, curves)
    # The paper printed the numbers behind such verdicts, not the words; on stage the race has the screen.
    if not picked.published and not stage.on():
        with answered, layout.told():
            verdict_table.show(picked, sentence=watched)
    if curves is not None:
        with layout.told():
            leaderboard.show(offers.offers(picked.kind, curves, picked.run))
    origin = [curves.provenance] if curves is not None else []
    also = [] if picked.published else [results.read_paper().provenance]
    tools.end(shown[0] if shown else None, "snapshot", *_notes(picked), provenance=[*origin, *picked.provenance, *also])


def _budget(picked: sources.Source, *, hero: bool) -> pl.DataFrame:
    table = picked.table("budget")
    tools.show(budget.budgets(table), "budget", finding=budget.finding(table), below=budget.WHAT, hero=hero)
    return table


def _snapshot(picked: sources.Source, curves: results.Curves, *, hero: bool) -> pl.DataFrame:
    table = overview.over_models(_beside(picked, curves))
    at = formats.rate(overview.RATE)
    told = curve_findings.harm(table.filter(pl.col("label") == table["label"][0]), "lerf", f"with {at} removed")
    tools.show(
        overview.snapshot(table, BELOW), "snapshot", finding=told, below=f"first row: {table['label'][0]}; {BELOW}",
        hero=hero,
    )  # fmt: skip
    return table


def _model(picked: sources.Source, curves: results.Curves | None) -> None:
    facts: list[model_card.Fact] = []
    story = model_card.RUN_STORY
    with layout.told():
        if picked.kind == sources.SHIPPED:
            story = model_card.SHIPPED_STORY
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


def _notes(picked: sources.Source) -> list[str]:
    if picked.published:
        return []
    return ["Models differ in size, text and vocabulary: compare the order of the selectors, not the heights."]
