"""Is removing rows worth it? A section of the refusal page: row masks beside other ways to install refusal."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import formats, palette, refusal_baselines as chart, refusal_values as refusals
from dashboard.charts.findings import refusal as findings
from dashboard.charts.sortable import Sortable, perplexities, sortable
from dashboard.show import grid, layout, selection, tools
from dashboard.state import sources

STEM = "baselines"


def section(source: sources.Source) -> None:
    """The figure of one domain, and the settings behind it."""
    table = source.table(STEM)
    domains = table["domain"].unique(maintain_order=True).to_list()
    domain = selection.choose("Refuse", domains, "baselines_domain", title=palette.capital)
    rows = chart.final(table, domain)
    st.caption(
        "Each way at its strongest setting within the same limits of benign refusal and perplexity, which were met on "
        "the calibration prompts. KL: how far the next token's distribution moves on the unedited model's own replies "
        "to harmless prompts, in nats per token."
    )
    where = "held-out prompts" if (rows["prompts"] == "heldout").any() else "calibration prompts"
    figure = chart.ways(rows, f"Ways to refuse: {domain}", f"{where}, 95% intervals")
    tools.show(figure, STEM, _alt(rows, domain), finding=findings.ways(rows, chart.way_title, domain))
    grid.show(_settings(rows))
    layout.footnote(
        "A system prompt stands before prompts only, so the perplexity of plain text is the unedited model's. A vector "
        "with a condition is added to no text in which the condition does not hold.",
    )


def _alt(rows: pl.DataFrame, domain: str) -> str:
    told = [
        f"{chart.way_title(row)} {chart.NONE}"
        if row["setting"] is None
        else f"{chart.way_title(row)} malign {refusals.percent(row['edited_malign'])}, benign "
        f"{refusals.percent(row['edited_benign'])}, KL {formats.rounded(row['kl'])}"
        for row in rows.iter_rows(named=True)
    ]
    before = refusals.percent(rows["unedited_malign"][0]) if rows.height else "–"
    return f"Refusal of {domain} prompts by method; unedited malign {before}. " + "; ".join(told) + "."


def _settings(rows: pl.DataFrame) -> Sortable:
    """The figure's rows for people."""
    found, numbers = [], []
    for row in rows.iter_rows(named=True):
        rates = {
            f"{name} {when}": refusals.percent(*(row[f"{state}_{kind}{end}"] for end in ("", "_low", "_high")))
            for kind, name in (("malign", "Malign"), ("benign", "Benign"))
            for state, when in (("unedited", "before"), ("edited", "after"))
        }
        found.append(
            {
                "Way": chart.way_title(row),
                "Setting": row["setting"] or chart.NONE,
                **rates,
                "KL, nats per token": formats.rounded(row["kl"]),
                "Perplexity": formats.perplexity(row["edited_nll"]),
                "Cut off": row["malign_unfinished"] + row["benign_unfinished"] if row["setting"] else None,
            }
        )
        numbers.append(
            {
                f"{name} {when}": row[f"{state}_{kind}"]
                for kind, name in (("malign", "Malign"), ("benign", "Benign"))
                for state, when in (("unedited", "before"), ("edited", "after"))
            }
            | {"KL, nats per token": row["kl"], "nll": row["edited_nll"]}
        )
    behind = pl.DataFrame(numbers, infer_schema_length=None).cast(pl.Float64)
    behind = behind.with_columns(perplexities(pl.col("nll")).alias("Perplexity")).drop("nll")
    return sortable(pl.DataFrame(found, infer_schema_length=None), behind)
