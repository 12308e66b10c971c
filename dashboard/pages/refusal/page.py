"""Refusal: what removing few rows does to the replies, with controls, the replies themselves, and their judges."""

from contextlib import suppress
from operator import itemgetter

import polars as pl
import streamlit as st

from dashboard.charts import formats, refusal_rates as chart, refusal_structure, refusal_values as refusals
from dashboard.charts.findings import refusal as findings
from dashboard.charts.sortable import Sortable, of_perplexity, of_rows
from dashboard.pages.refusal import edit_grid, judging, replies, structure
from dashboard.show import layout, selection, tables, tools
from dashboard.state import offers, parts, results
from dashboard.state.parts import Drawn, Part
from dashboard.state.results import POINTS
from dashboard.state.sources import Source
from dashboard.state.tabs import tabs_of
from engine.records.errors import InputError

JUDGES, KEY = "Judges", "section"
COMPOSED = (
    "One mask made from the prompts of several domains, beside the masks of each domain with as many rows, on held-out "
    "prompts. If domains share what they use, the composed mask works on each of them."
)
BASELINES = (
    "Each way at its strongest setting within the same limits of harmless prompts refused and perplexity, which "
    "were met on the calibration prompts. KL: how far the next token's distribution moves on the "
    "unedited model's own replies to harmless prompts, in nats per token."
)


def _baselines(source: Source) -> Drawn:
    table = source.table("baselines")
    domain = selection.choose_domain(table, "baselines_domain", place=source.bar)
    rows = chart.final(table, domain)
    where = "held-out prompts" if (rows["prompts"] == "heldout").any() else "calibration prompts"
    figure = chart.ways(rows, f"Ways to refuse: {domain}", f"{where}, 95% intervals")
    with source.hero():
        tools.show(figure, "baselines", finding=findings.ways(rows, chart.way_title, domain), hero=True)
    tables.show(_settings(rows))
    note = (
        "A system prompt stands before prompts only, so the perplexity of plain text is the unedited model's. A vector "
        "with a condition is added to no text in which the condition does not hold."
    )
    return Drawn(table, notes=(note,))


def _settings(rows: pl.DataFrame) -> Sortable:
    return of_rows(rows.iter_rows(named=True), {
        "Way": lambda row: chart.way_title(dict(row)), "Setting": lambda row: row["setting"] or chart.NONE,
        **refusals.rate_columns(),
        "KL, nats per token": (lambda row: formats.rounded(row["kl"]), itemgetter("kl")),
        "Perplexity": of_perplexity("edited_nll"),
        "Cut off": lambda row: row["malign_unfinished"] + row["benign_unfinished"] if row["setting"] else None,
    })  # fmt: skip


def _composed(source: Source) -> Drawn:
    """Malign refusal on the left, benign refusal on the right, and what each mask costs."""
    table = source.table("composed")
    selector = selection.choose_selector(table, "composed_selector", default="lrp", place=source.bar)
    part = table.filter(selector=selector)
    with source.hero():
        columns = st.columns(2)
    for column, kind in zip(columns, ("malign", "benign"), strict=True):
        with column:
            figure, told = chart.composed(part, kind), findings.composed(part, kind)
            tools.show(figure, f"composed-{kind}", finding=told, hero=True)
    edits = part.filter(pl.col("mask_domain") != "none").unique("mask_domain", maintain_order=True)
    named = edits.select("mask_domain", "nll").rows()
    costs = [f"{chart.mask_title(name)} {formats.perplexity(nll)}" for name, nll in named]
    st.text("Perplexity: " + ", ".join(costs) if costs else "No cell of this selector's grid was good enough.")
    return Drawn(part)


def _across_models(source: Source) -> Drawn:
    """Refusal that the edits of LRP and IG install in one domain, on this model, those compared and the paper's."""
    paper = refusals.lrp_and_ig(results.read_published(POINTS).frame)
    own = paper.clear() if source.published else refusals.lrp_and_ig(source.table(POINTS))
    together = []
    for offer in offers.compared(offers.everything()).values():
        with suppress(InputError):  # a run without points has no line here
            together.append(refusals.lrp_and_ig(offer.table(POINTS)))
    chosen = any(one.height for one in together)
    table = pl.concat(together if chosen else [own, paper])
    domain = selection.choose_domain(table, "models_domain", place=source.bar)
    figure, told = refusal_structure.reversal(table, domain), findings.reversal(table, domain)
    with source.hero():
        tools.show(figure, "reversal", finding=told, hero=True)
    note = "Published values of the paper's models, as printed"
    note += "." if source.published else "; this source's own model stands first."
    if chosen:
        note = "What is chosen under Compare and has operating points; values of the paper's models as printed."
    return Drawn(table, notes=(note,))


PARTS = {
    "Edits": edit_grid.PART,
    "Replies": replies.PART,
    JUDGES: Part(lambda _: Drawn(None), ()),  # picks replies by itself
    "Where the rows are": structure.PART,
    "Two domains in one mask": Part(_composed, ("composed",), COMPOSED),
    "Other methods": Part(_baselines, ("baselines",), BASELINES),
    "Across models": Part(_across_models, (POINTS,)),
}
_FOLDED = ("Operating points", "Perplexity against k")  # former parts, which the fold of Edits has


def render() -> None:
    if st.query_params.get(KEY) in _FOLDED:
        st.session_state[selection.MORE] = True
    if (former := st.query_params.get("show", "")) in edit_grid.FORMER:
        st.session_state["show"] = edit_grid.FORMER[former]
    plug_ins = {title: Part(show, edit_grid.PART.stems) for title, show in tabs_of("refusal").items()}
    every = PARTS | plug_ins
    stage = layout.heading("Refusal", "Which few rows, zeroed, make the model refuse?")
    bar = layout.bar(stage)
    name = parts.choose(bar, tuple(every), KEY)
    if name == JUDGES:
        judging.draw(stage, bar)
    else:
        parts.draw(stage, bar, name, every[name])
