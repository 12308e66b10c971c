"""The rest of the refusal page, one section at a time: points, structure, perplexity, two domains, other
methods, models."""

from __future__ import annotations

from contextlib import suppress

import polars as pl
import streamlit as st

from dashboard.charts import (
    formats,
    lines,
    palette,
    refusal_rates,
    refusal_structure as refusal_structure_chart,
    refusal_values as refusals,
)
from dashboard.charts.findings import refusal as findings
from dashboard.charts.lines import Axis
from dashboard.pages.refusal import baselines as refusal_baselines, replies, structure as refusal_structure
from dashboard.pages.refusal.specificity import optional
from dashboard.show import grid, layout, selection, tools
from dashboard.state import basket, offers, results, sources
from dashboard.state.results import POINTS, REFUSAL_SWEEP
from dashboard.state.tabs import tabs_of
from engine.records.errors import InputError

POINT_LIST, REPLIES, WHERE, LANGUAGE, TWO, OTHERS, MODELS = (
    "Operating points", "Replies", "Where the rows are", "Perplexity against k", "Two domains in one mask",
    "Other methods", "Across models",
)  # fmt: skip


def sections(source: sources.Source) -> None:
    """A switch, and the section that is chosen."""
    st.divider()
    parts = {
        POINT_LIST: _points, REPLIES: replies.section, WHERE: refusal_structure.section, LANGUAGE: _language, TWO: _two,
        OTHERS: refusal_baselines.section, MODELS: _models, **tabs_of("refusal"),
    }  # fmt: skip
    parts[selection.switch("More", tuple(parts), "section", default=POINT_LIST)](source)


def _points(source: sources.Source) -> None:
    table = refusals.point_table(source.table(POINTS), optional(source, "specificity"))
    grid.show(table)
    layout.footnote(
        "Each rate with Wilson's 95% interval. Optimism: malign refusal on the pairs that the point was chosen on "
        "minus that on the held-out pairs.",
        "Random masks, mean: the paper's figure, malign refusal under a few random masks with as many rows in every "
        "layer that were not searched; gain: the edit minus that, no test. Rank and p: among random draws with a grid "
        "and a choice of their own (`refusal draws`), – where they were not measured.",
        "Rescue: no cell refused at most 10% of the harmless prompts, so the limit was relaxed for this one.",
        "A point at the grid's edge may have a better one beyond it, which was not searched."
        if refusals.EDGE in table.numbers.columns
        else "",
    )


def _language(source: sources.Source) -> None:
    table = source.table(REFUSAL_SWEEP).filter(pl.col("k") > 0)
    domains = table["domain"].unique(maintain_order=True).to_list()
    strengths = sorted(set(table.filter(pl.col("selector") != "random")["lambda"])) or [0.0]
    with st.container(horizontal=True, gap="medium"):
        domain = selection.choose("Masks of domain", domains, "language_domain", title=palette.capital)
        lam = (
            selection.pick("λ", strengths, "language_lambda", default=strengths[0], title="{:g}".format)
            if len(strengths) > 1
            else strengths[0]
        )
    part = table.filter(
        pl.col("domain") == domain, ((pl.col("lambda") - lam).abs() < 1e-9) | (pl.col("selector") == "random")
    )
    if part.is_empty():
        raise InputError(f"no mask of {domain} was measured at λ = {lam:g}; choose another")
    dense = source.table(REFUSAL_SWEEP).filter(pl.col("k") == 0)["nll"].mean()
    figure = lines.lines(
        part, Axis("k", "k, share of rows removed", "category"), Axis("nll", "perplexity", "perplexity"),
        heading=f"Perplexity against k: {domain}", below=f"λ = {lam:g}; random has no λ",
        hover=lambda row: f"k {formats.rate(row['k'])}<br>perplexity {formats.perplexity(row['nll'])}<br>"
        f"NLL {row['nll']:.4f} nats per token",
        reference=(float(dense), "unedited") if isinstance(dense, float) else None,
    )  # fmt: skip
    below = f"{domain}, λ = {lam:g}; random has no λ"
    tools.show(figure, "perplexity-k", finding=findings.cost(part), below=below)


def _two(source: sources.Source) -> None:
    table = source.table("composed")
    selector = selection.choose(
        "Selector", palette.in_order(table["selector"].unique().to_list()), "composed_selector", default="lrp",
        title=palette.title,
    )  # fmt: skip
    part = table.filter(selector=selector)
    st.caption(
        "One mask made from the prompts of several domains, beside the masks of each domain with as many rows, on "
        "held-out prompts. If domains share what they use, the composed mask works on each of them."
    )
    for column, kind in zip(st.columns(2), ("malign", "benign"), strict=True):
        with column:
            figure, told = refusal_rates.composed(part, kind), findings.composed(part, kind)
            tools.show(figure, f"composed-{kind}", finding=told)
    edits = part.filter(pl.col("mask_domain") != "none").unique("mask_domain", maintain_order=True)
    costs = [
        f"{refusal_rates.mask_title(row['mask_domain'])} {formats.perplexity(row['nll'])}"
        for row in edits.iter_rows(named=True)
    ]
    st.text("Perplexity: " + ", ".join(costs) if costs else "No cell of this selector's grid was good enough.")


def _models(source: sources.Source) -> None:
    paper = reversal(results.read_published(POINTS).frame)
    own = reversal(source.table(POINTS)) if not source.published else paper.clear()
    table, together = pl.concat([own, paper]), _basket()
    if together is not None:
        table = together
    domain = selection.choose(
        "Over models, domain", table["domain"].unique(maintain_order=True).to_list(), "models_domain",
        title=palette.capital,
    )  # fmt: skip
    figure, told = refusal_structure_chart.reversal(table, domain), findings.reversal(table, domain)
    tools.show(figure, "reversal", finding=told)
    layout.footnote(
        "Published values of the paper's models, as printed"
        + ("." if source.published else "; this source's own model stands first.")
        if together is None
        else "What lies in the basket and has operating points; values of the paper's models as printed."
    )


def _basket() -> pl.DataFrame | None:
    """`reversal` over the models in the basket that have operating points; None where there is none."""
    found = []
    for offer in basket.chosen(offers.everything()).values():
        with suppress(InputError):  # a run without points has no line here
            table = results.read_published(POINTS) if offer.folder is None else results.read_table(offer.folder, POINTS)
            found.append(reversal(table.frame.filter(model=offer.model)))
    found = [one for one in found if one.height]
    return pl.concat(found) if found else None


def reversal(points: pl.DataFrame) -> pl.DataFrame:
    """Malign refusal of LRP's and IG's operating points: model, domain, selector, rescue, malign."""
    columns = ["model", "domain", "selector", "rescue"]
    if "edited_malign" not in points.columns:
        return points.select(columns).clear().with_columns(malign=pl.lit(None, pl.Float64))
    kept = points.filter(pl.col("selector").is_in(["lrp", "ig"]), pl.col("edited_malign").is_not_null())
    return kept.select(*columns, malign="edited_malign")
