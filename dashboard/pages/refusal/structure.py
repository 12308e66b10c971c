"""Where the rows of refusal contrasts are: density, depth, projections, and what methods and domains share."""

import polars as pl
import streamlit as st

from dashboard.charts import palette, refusal_structure
from dashboard.charts.findings import refusal as findings
from dashboard.show import layout, selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source
from engine.records.errors import InputError

BY_CONTRAST, BY_SIZE = "Highest contrast", "Largest absolute contrast"
_RANKED_BY = {BY_CONTRAST: "c_comply", BY_SIZE: "abs_c_comply"}


def show(source: Source) -> Drawn:
    """Signal density and overlap of methods; folded, depths and projections, and harm clusters."""
    with source.hero():
        left, right = st.columns(2)
    table = None
    with left, layout.told():
        table = source.table("signal_density")
        figure = refusal_structure.densities(table)
        tools.show(figure, "signal-density", finding=findings.densest(table), hero=True)
    with right, layout.told():
        _methods_overlap(source)
    return Drawn(table, lambda: _more(source))


def _more(source: Source) -> None:
    with layout.told():
        _parts(source)
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


def _parts(source: Source) -> None:
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


def _methods_overlap(source: Source) -> None:
    table = _overlaps(source, "selectors")
    pairs = [("lrp", "ig"), *zip(table["selector_a"], table["selector_b"], strict=True)]
    pair = next(two for two in pairs if not _of_pair(table, two).is_empty())
    table = _of_pair(table, pair)
    if (table["ranked_by"] == _RANKED_BY[BY_CONTRAST]).any():
        table = table.filter(ranked_by=_RANKED_BY[BY_CONTRAST])
    told = findings.shared_rows(table, " and ".join(map(palette.title, pair)))
    tools.show(refusal_structure.methods_overlap(table, pair), "methods-overlap", finding=told, hero=True)


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


PART = Part(
    show, ("signal_density", "refusal_jaccard", "refusal_shares"),
    "C_comply is high where a row promotes answering risk prompts but not harmless ones. Few rows with a clear "
    "contrast mean a sharp signal; shares above the grey bars mean that the rows gather there.",
)  # fmt: skip
