"""Row masks beside system prompts and steering vectors: refusal of each way's strongest setting, and its damage."""

from __future__ import annotations

import html

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, formats, palette
from dashboard.charts.lines import finished
from dashboard.charts.refusal_values import Row, percent

METHODS = {
    "row_mask": "Row mask",
    "system_prompt": "System prompt",
    "activation_addition": "Vector added",
    "conditional_addition": "Vector if condition",
}
_VECTORS = {"difference": "risk − base prompts", "openings": "refusing − complying", "wording": ""}
_SIDES = (
    ("malign", "risk prompts", palette.AFTER, "diamond", -0.14),
    ("benign", "harmless prompts", "#DD7A02", "square-open", 0.14),
)
NONE = "none within the limits"


def final(table: pl.DataFrame, domain: str) -> pl.DataFrame:
    """One row per way: its chosen setting on the final prompts, or that it has none."""
    part = table.filter(domain=domain)
    prompts = "heldout" if (part["prompts"] == "heldout").any() else "calibration"
    return part.filter(pl.col("prompts") == prompts, pl.col("chosen") | pl.col("setting").is_null())


def way_title(row: Row) -> str:
    """`Row mask, LRP`; `Vector added, risk − base prompts`."""
    method = METHODS.get(row["method"], str(row["method"]))
    vector = palette.title(row["vector"]) if row["method"] == "row_mask" else _VECTORS.get(row["vector"], row["vector"])
    return f"{method}, {vector}" if vector else method


def damage(row: Row) -> str:
    """`KL 0.069, perplexity 14.3`."""
    return f"KL {formats.rounded(row['kl'])}, perplexity {formats.perplexity(row['edited_nll'])}"


def ways(rows: pl.DataFrame, heading: str, below: str) -> go.Figure:
    """Every way's refusal of risk and of harmless prompts with 95% intervals; the unedited model dotted.

    rows: of `final`. What each costs stands under its name.
    """
    places = list(rows.iter_rows(named=True))
    figure = go.Figure()
    for side, name, colour, symbol, shift in _SIDES:
        known = [(place + shift, row) for place, row in enumerate(places) if row["setting"] is not None]
        rates = [tuple(row[f"edited_{side}{end}"] for end in ("", "_low", "_high")) for _, row in known]
        figure.add_scatter(
            x=[rate[0] for rate in rates], y=[place for place, _ in known], mode="markers", name=f"{name} refused",
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
            error_x=axes.intervals(rates, thickness=1.5, colour=colour),
            customdata=[
                f"<b>{html.escape(way_title(row))}</b><br>{html.escape(row['setting'])}<br>{name} {percent(*rate)}<br>"
                f"{row['pairs']:,} prompts<br>{damage(row)}"
                for (_, row), rate in zip(known, rates, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    if places:
        axes.level(figure, "risk, unedited", x=places[0]["unedited_malign"])
    labels = [
        f"{html.escape(way_title(row))}<br>{damage(row) if row['setting'] is not None else NONE}" for row in places
    ]
    figure.update_xaxes(**axes.titled("refused", range=[-0.03, 1.03], tickformat=".0%"))
    figure.update_yaxes(**axes.places(labels))
    return finished(figure, heading, below, 170 + 56 * max(len(places), 2), bottom=90)
