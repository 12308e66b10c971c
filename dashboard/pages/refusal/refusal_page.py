"""Refusal: what removing few rows does to the replies, with controls, the replies themselves, and their judges."""

from contextlib import suppress
from operator import itemgetter

import polars as pl
import streamlit as st

from dashboard.charts import formats, palette, refusal_rates as chart, refusal_structure, refusal_values as refusals
from dashboard.charts.findings import refusal_findings as findings
from dashboard.charts.sortable import of_perplexity, of_rows
from dashboard.pages.refusal import edit_grid, judging, reply_list as replies
from dashboard.show import layout, selection, shown_tables as tables, tools
from dashboard.state import offers, page_parts as parts, results
from dashboard.state.page_parts import Drawn, Part
from dashboard.state.results import POINTS
from dashboard.state.sources import Source
from dashboard.state.tabs import tabs_of
from engine.records.errors import InputError

JUDGES, KEY = "Judges", "section"
BY_CONTRAST, BY_SIZE = "Highest contrast", "Largest absolute contrast"
_RANKED_BY = {BY_CONTRAST: "c_comply", BY_SIZE: "abs_c_comply"}
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
    source.show(figure, "baselines", finding=findings.ways(rows, chart.way_title, domain))
    tables.show(of_rows(rows.iter_rows(named=True), {
        "Way": lambda row: chart.way_title(dict(row)), "Setting": lambda row: row["setting"] or chart.NONE,
        **refusals.rate_columns(),
        "KL, nats per token": (lambda row: formats.rounded(row["kl"]), itemgetter("kl")),
        "Perplexity": of_perplexity("edited_nll"),
        "Cut off": lambda row: row["malign_unfinished"] + row["benign_unfinished"] if row["setting"] else None,
    }))  # fmt: skip
    note = (
        "A system prompt stands before prompts only, so the perplexity of plain text is the unedited model's. A vector "
        "with a condition is added to no text in which the condition does not hold."
    )
    return Drawn(table, notes=(note,))


def _composed(source: Source) -> Drawn:
    """Malign refusal on the left, benign refusal on the right, and what each mask costs."""
    table = source.table("composed")
    selector = selection.choose_selector(table, "composed_selector", default="lrp", place=source.bar)
    of_selector = table.filter(selector=selector)
    for column, kind in zip(source.hero().columns(2), ("malign", "benign"), strict=True):
        with column:
            figure, told = chart.composed(of_selector, kind), findings.composed(of_selector, kind)
            tools.show(figure, f"composed-{kind}", finding=told, hero=True)
    edits = of_selector.filter(pl.col("mask_domain") != "none").unique("mask_domain", maintain_order=True)
    named = edits.select("mask_domain", "nll").rows()
    costs = [f"{chart.mask_title(name)} {formats.perplexity(nll)}" for name, nll in named]
    st.text("Perplexity: " + ", ".join(costs) if costs else "No cell of this selector's grid was good enough.")
    return Drawn(of_selector)


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
    source.show(figure, "reversal", finding=told)
    note = "Published values of the paper's models, as printed"
    note += "." if source.published else "; this source's own model stands first."
    if chosen:
        note = "What is chosen under Compare and has operating points; values of the paper's models as printed."
    return Drawn(table, notes=(note,))


def _structure(source: Source) -> Drawn:
    """Signal density and overlap of methods; folded, depths and projections, and harm clusters."""
    left, right = source.hero().columns(2)
    table = None
    with left, layout.told():
        table = source.table("signal_density")
        figure = refusal_structure.densities(table)
        tools.show(figure, "signal-density", finding=findings.densest(table), hero=True)
    with right, layout.told():
        overlaps = _overlaps(source, "selectors")
        pairs = [("lrp", "ig"), *zip(overlaps["selector_a"], overlaps["selector_b"], strict=True)]
        pair = next(two for two in pairs if not _of_pair(overlaps, two).is_empty())
        overlaps = _of_pair(overlaps, pair)
        if (overlaps["ranked_by"] == _RANKED_BY[BY_CONTRAST]).any():
            overlaps = overlaps.filter(ranked_by=_RANKED_BY[BY_CONTRAST])
        sentence = findings.shared_rows(overlaps, " and ".join(map(palette.title, pair)))
        figure = refusal_structure.methods_overlap(overlaps, pair)
        tools.show(figure, "methods-overlap", finding=sentence, hero=True)
    return Drawn(table, lambda: _structure_more(source))


def _structure_more(source: Source) -> None:
    with layout.told():
        _shares(source)
    with layout.told():
        _clusters(source)


def _ranking(table: pl.DataFrame) -> pl.DataFrame:
    known = [name for name, key in _RANKED_BY.items() if (table["ranked_by"] == key).any()]
    if len(known) < 2:
        return table
    how = selection.switch(
        "Top rows by", known, "ranked_by", default=BY_CONTRAST,
        help_text="Highest contrast: the rows a mask takes. Absolute: also rows that promote refusing, as the paper "
        "counts depths.",
    )  # fmt: skip
    return table.filter(ranked_by=_RANKED_BY[how])


def _shares(source: Source) -> None:
    table = source.table("refusal_shares")
    with st.container(horizontal=True, gap="medium"):
        domain = selection.choose_domain(table, "structure_domain", "Structure of domain")
        table = _ranking(table.filter(domain=domain))
    left, right = st.columns(2)
    with left:
        depth = table.filter(part="third")
        if depth.height:
            heading, below = "Depth of the top 1% of rows", f"{domain}: early, middle and late third of the blocks"
            figure, told = refusal_structure.shares(depth, heading, below), findings.gathered(depth, heading)
            tools.show(figure, "layer-thirds", finding=told)
    with right:
        projections = table.filter(part="projection")
        if projections.is_empty():
            st.caption("Shares by projection were not printed." if source.published else "There are no shares here.")
            return
        heading, below = "Projections of the top 1% of rows", f"{domain}: beside the share of all rows"
        figure, told = refusal_structure.shares(projections, heading, below), findings.gathered(projections, heading)
        tools.show(figure, "projections", finding=told)


def _overlaps(source: Source, comparison: str) -> pl.DataFrame:
    table = source.table("refusal_jaccard").filter(comparison=comparison)
    if table.is_empty():
        rest = "the paper printed them for others" if source.published else "calibrate at least two"
        raise InputError(f"there are no overlaps of {comparison} for this model; {rest}")
    return table


def _of_pair(table: pl.DataFrame, pair: tuple[str, str]) -> pl.DataFrame:
    return table.filter(pl.col("selector_a").is_in(pair), pl.col("selector_b").is_in(pair))


def _clusters(source: Source) -> None:
    table = _overlaps(source, "domains")
    selectors = palette.in_order(table["selector_a"].unique().to_list())
    left, right = st.columns([1, 2])
    with left:
        layout.section("Do domains share rows?")
        selector = selection.choose("Contrast of", selectors, "cluster_selector", default="lrp", title=palette.title)
        st.caption("Domains whose cells stand out from chance share a part of what they use: a harm cluster.")
    table = table.filter(selector_a=selector)
    keys = set(table["ranked_by"])  # ranked as the switch above says, or the only way there is
    chosen = _RANKED_BY[st.session_state.get("ranked_by") or BY_CONTRAST]
    table = table.filter(ranked_by=chosen if chosen in keys else next(iter(keys)))
    domains = list(dict.fromkeys([*table["domain_a"], *table["domain_b"]]))
    title = palette.title(selector)
    figure, told = refusal_structure.clusters(table, domains, f"{title}: domains"), findings.clusters(table, title)
    with right:
        tools.show(figure, "harm-clusters", finding=told)


STRUCTURE = Part(
    _structure, ("signal_density", "refusal_jaccard", "refusal_shares"),
    "C_comply is high where a row promotes answering risk prompts but not harmless ones. Few rows with a clear "
    "contrast mean a sharp signal; shares above the grey bars mean that the rows gather there.",
)  # fmt: skip

PARTS = {
    "Edits": edit_grid.PART,
    "Replies": replies.PART,
    JUDGES: Part(lambda _: Drawn(None), ()),  # picks replies by itself
    "Where the rows are": STRUCTURE,
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
    stage = layout.heading("Refusal", "Zeroed: a few rows that a score finds behind answering risk prompts")
    bar = layout.bar(stage)
    name = parts.choose(bar, tuple(every), KEY)
    if name == JUDGES:
        judging.draw(stage, bar)
    else:
        parts.draw(stage, bar, name, every[name])
