"""The figure of the overview: perplexity at one rate over models. No streamlit here."""

import html
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import formats, matrix, palette, series
from engine.records.errors import InputError
from engine.stats.limits import Thresholds

RATE = Thresholds().rate


def over_models(sweeps: Mapping[str, tuple[pl.DataFrame, str]]) -> pl.DataFrame:
    """LeRF at `RATE` over models. sweeps: label -> (curves, model).
    Columns: label, selector, nll, error (`series.whole_error`), printed, destroyed, unmasked_nll; models that were not
    measured at `RATE` are left out."""
    parts = []
    for label, (curves, model) in sweeps.items():
        points = series.points(curves, model, curves["selector"].unique().to_list(), ["lerf"], (RATE, RATE))
        parts.append(
            palette.sorted_by_selector(points).select(
                pl.lit(label).alias("label"), "selector", "nll", series.whole_error().alias("error"), "printed",
                "destroyed", pl.lit(series.unmasked_nll(curves, model), pl.Float64).alias("unmasked_nll"),
            )
        )  # fmt: skip
    if not any(part.height for part in parts):
        raise InputError(f"no model here was measured under LeRF at {RATE:.0%}; run `selector-audit sweep`")
    return pl.concat(parts)


def snapshot(table: pl.DataFrame, below: str) -> go.Figure:
    """LeRF perplexity at one rate, a line per model and a column per selector (`over_models`), the unmasked model last.
    Colours are places within a line: heights of different models do not compare."""
    labels = table["label"].unique(maintain_order=True).to_list()
    selectors = palette.in_order(table["selector"].to_list())
    rows = {(row["label"], row["selector"]): row for row in table.iter_rows(named=True)}
    unmasked = dict(table.select("label", "unmasked_nll").iter_rows())
    cells = [[rows.get((label, name)) for name in selectors] for label in labels]
    values = [[row["nll"] if row else None for row in line] + [unmasked[label]]
              for label, line in zip(labels, cells, strict=True)]  # fmt: skip
    return matrix.matrix(
        values, [*map(palette.title, selectors), "Unmasked"], [html.escape(label) for label in labels],
        heading=f"{formats.rate(RATE)} removed, lowest scores first (LeRF)", below=html.escape(below),
        text=formats.perplexity, span=(0.0, 1.0),
        hover=[[_hover(row) if row else "" for row in line] + ["the unmasked model"] for line in cells],
        colour=[matrix.places(line) for line in values],
    )  # fmt: skip


def _hover(row: dict[str, Any]) -> str:
    printed = f" (printed {row['printed']})" if row["printed"] else ""
    return (
        f"<b>{palette.title(row['selector'])}</b>, {html.escape(row['label'])}<br>perplexity "
        f"{formats.perplexity(row['nll'])}{printed}<br>NLL {row['nll']:.4f} nats per token"
    )
