"""Where the rows of refusal contrasts are: density, depth, projections, and what methods and domains share."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import palette, refusal_structure
from dashboard.charts.findings import refusal as findings
from dashboard.show import layout, selection, tools
from dashboard.state import sources
from engine.records.errors import InputError

BY_CONTRAST, BY_SIZE = "Highest contrast", "Largest absolute contrast"
_RANKED_BY = {BY_CONTRAST: "c_comply", BY_SIZE: "abs_c_comply"}


def section(source: sources.Source) -> None:
    """Signal density, overlap of methods, depths and projections, harm clusters."""
    st.caption(
        "C_comply is high where a row promotes answering risk prompts but not harmless ones. Few rows with a clear "
        "contrast mean a sharp signal; shares above the grey bars mean that the rows gather there."
    )
    left, right = st.columns(2)
    with left, layout.told():
        table = source.table("signal_density")
        figure = refusal_structure.densities(table)
        tools.show(figure, "signal-density", _densest(table), finding=findings.densest(table))
    with right, layout.told():
        _methods_overlap(source)
    with layout.told():
        _parts(source)
    with layout.told():
        _clusters(source)


def _densest(table: pl.DataFrame) -> str:
    row = table.sort("density", descending=True).row(0, named=True)
    return (
        "Share of rows with an absolute contrast above one half, by domain and selector; densest: "
        f"{palette.title(row['selector'])} on {row['domain']}, {row['density']:.1%}."
    )


def _wanted(table: pl.DataFrame) -> str:
    """The way of ranking that the switch above is on, or the only one there is."""
    keys = set(table["ranked_by"])
    chosen = _RANKED_BY[st.session_state.get("ranked_by") or BY_CONTRAST]
    return chosen if chosen in keys else str(next(iter(keys)))


def _ranking(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of one way of ranking; asked for where there are two."""
    known = [name for name, key in _RANKED_BY.items() if (table["ranked_by"] == key).any()]
    if len(known) < 2:
        return table
    how = selection.switch(
        "Top rows by", known, "ranked_by", default=BY_CONTRAST,
        help_text="Highest contrast: the rows a mask takes. Absolute: also rows that promote refusing, as the paper "
        "counts depths.",
    )  # fmt: skip
    return table.filter(ranked_by=_RANKED_BY[how])


def _parts(source: sources.Source) -> None:
    table = source.table("refusal_shares")
    domains = table["domain"].unique(maintain_order=True).to_list()
    with st.container(horizontal=True, gap="medium"):
        domain = selection.choose("Structure of domain", domains, "structure_domain", title=palette.capital)
        table = _ranking(table.filter(domain=domain))
    left, right = st.columns(2)
    with left:
        depth = table.filter(part="third")
        if depth.height:
            heading, below = ("Depth of the top 1% of rows", f"{domain}: early, middle and late third of the blocks")
            figure, told = refusal_structure.shares(depth, heading, below), findings.gathered(depth, heading)
            tools.show(figure, "layer-thirds", _shares_alt(depth, heading), finding=told)
    with right:
        projections = table.filter(part="projection")
        if projections.is_empty():
            st.caption("Shares by projection were not printed." if source.published else "There are no shares here.")
            return
        heading, below = "Projections of the top 1% of rows", f"{domain}: beside the share of all rows"
        tools.show(
            refusal_structure.shares(projections, heading, below),
            "projections",
            _shares_alt(projections, heading),
            finding=findings.gathered(projections, heading),
        )


def _shares_alt(table: pl.DataFrame, heading: str) -> str:
    told = []
    for selector in palette.in_order(table["selector"].unique().to_list()):
        row = table.filter(selector=selector).sort("share", descending=True).row(0, named=True)
        base = f" ({row['base_rate']:.0%} of all rows)" if row["base_rate"] is not None else ""
        told.append(f"{palette.title(selector)} {row['name']} {row['share']:.0%}{base}")
    return f"{heading}, largest share per selector: {', '.join(told)}."


def _overlaps(source: sources.Source, comparison: str) -> pl.DataFrame:
    table = source.table("refusal_jaccard").filter(comparison=comparison)
    if table.is_empty():
        raise InputError(
            f"there are no overlaps of {comparison} for this model"
            + ("; the paper printed them for others" if source.published else "; calibrate at least two")
        )
    return table


def _methods_overlap(source: sources.Source) -> None:
    table = _overlaps(source, "selectors")
    pairs = [("lrp", "ig"), *zip(table["selector_a"], table["selector_b"], strict=True)]
    pair = next(two for two in pairs if not _of_pair(table, two).is_empty())
    table = _of_pair(table, pair)
    if (table["ranked_by"] == _RANKED_BY[BY_CONTRAST]).any():
        table = table.filter(ranked_by=_RANKED_BY[BY_CONTRAST])
    mean = float(table["jaccard"].to_numpy().mean())
    alt = f"Jaccard of the top rows of {' and '.join(map(palette.title, pair))} per domain, {mean:.3f} on average."
    told = findings.shared_rows(table, " and ".join(map(palette.title, pair)))
    tools.show(refusal_structure.methods_overlap(table, pair), "methods-overlap", alt, finding=told)


def _of_pair(table: pl.DataFrame, pair: tuple[str, str]) -> pl.DataFrame:
    return table.filter(pl.col("selector_a").is_in(pair), pl.col("selector_b").is_in(pair))


def _clusters(source: sources.Source) -> None:
    table = _overlaps(source, "domains")
    selectors = palette.in_order(table["selector_a"].unique().to_list())
    left, right = st.columns([1, 2])
    with left:
        layout.section("Do domains share rows?")
        selector = selection.choose("Contrast of", selectors, "cluster_selector", default="lrp", title=palette.title)
        st.caption("Domains whose cells stand out from chance share a part of what they use: a harm cluster.")
    table = table.filter(selector_a=selector)
    table = table.filter(ranked_by=_wanted(table))
    domains = list(dict.fromkeys([*table["domain_a"], *table["domain_b"]]))
    best = table.sort("jaccard", descending=True).row(0, named=True)
    alt = (
        f"Jaccard of the top rows of every pair of domains, {palette.title(selector)}; most alike: {best['domain_a']} "
        f"and {best['domain_b']}, {best['jaccard']:.2f}; by chance {best['expected_random']:.3f}."
    )
    with right:
        tools.show(
            refusal_structure.clusters(table, domains, f"{palette.title(selector)}: domains"),
            "harm-clusters",
            alt,
            finding=findings.clusters(table, palette.title(selector)),
        )
