"""Across models: refusal that the edits of LRP and IG install, on this model, those compared and the paper's."""

from contextlib import suppress

import polars as pl

from dashboard.charts import refusal_structure
from dashboard.charts.findings import refusal as findings
from dashboard.show import selection, tools
from dashboard.state import compared, offers, results
from dashboard.state.parts import Drawn, Part
from dashboard.state.results import POINTS
from dashboard.state.sources import Source
from engine.records.errors import InputError


def show(source: Source) -> Drawn:
    """One domain's refusal under LRP's and IG's points, model by model."""
    paper = reversal(results.read_published(POINTS).frame)
    own = reversal(source.table(POINTS)) if not source.published else paper.clear()
    together = _compared()
    table = pl.concat([own, paper]) if together is None else together
    domain = selection.choose_domain(table, "models_domain", place=source.bar)
    figure, told = refusal_structure.reversal(table, domain), findings.reversal(table, domain)
    with source.hero():
        tools.show(figure, "reversal", finding=told, hero=True)
    note = (
        "Published values of the paper's models, as printed"
        + ("." if source.published else "; this source's own model stands first.")
        if together is None
        else "What is chosen under Compare and has operating points; values of the paper's models as printed."
    )
    return Drawn(table, notes=(note,))


def _compared() -> pl.DataFrame | None:
    """`reversal` over the models chosen under Compare that have operating points; None where there is none."""
    found = []
    for offer in compared.chosen(offers.everything()).values():
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


PART = Part(show, (POINTS,))
