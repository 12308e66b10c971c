"""Other methods: is removing rows worth it? Row masks beside other ways to install refusal."""

from operator import itemgetter

import polars as pl

from dashboard.charts import formats, refusal_baselines as chart, refusal_values as refusals
from dashboard.charts.findings import refusal as findings
from dashboard.charts.sortable import Sortable, of_perplexity, of_rows
from dashboard.show import grid, selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source

STEM = "baselines"


def show(source: Source) -> Drawn:
    table = source.table(STEM)
    domain = selection.choose_domain(table, "baselines_domain", place=source.bar)
    rows = chart.final(table, domain)
    where = "held-out prompts" if (rows["prompts"] == "heldout").any() else "calibration prompts"
    figure = chart.ways(rows, f"Ways to refuse: {domain}", f"{where}, 95% intervals")
    with source.hero():
        tools.show(figure, STEM, finding=findings.ways(rows, chart.way_title, domain), hero=True)
    grid.show(_settings(rows))
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


PART = Part(
    show, (STEM,),
    "Each way at its strongest setting within the same limits of harmless prompts refused and perplexity, which "
    "were met on the calibration prompts. KL: how far the next token's distribution moves on the "
    "unedited model's own replies to harmless prompts, in nats per token.",
)  # fmt: skip
