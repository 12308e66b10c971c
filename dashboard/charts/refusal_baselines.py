"""Row masks beside system prompts and steering vectors: refusal of each way's strongest setting, and its damage."""

import html

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, formats, palette
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
    rows: of `final`. What each costs stands under its name."""
    found = list(rows.iter_rows(named=True))
    figure = go.Figure()
    for side, name, colour, symbol, shift in _SIDES:
        marks = []
        for place, row in enumerate(found):
            if row["setting"] is not None:
                rate = tuple(row[f"edited_{side}{end}"] for end in ("", "_low", "_high"))
                told = (
                    f"<b>{html.escape(way_title(row))}</b><br>{html.escape(row['setting'])}<br>{name} {percent(*rate)}"
                    f"<br>{row['pairs']:,} prompts<br>{damage(row)}"
                )
                marks.append(dots.Dot(place + shift, rate[0], told, *rate[1:]))
        dots.add(figure, f"{name} refused", marks, colour, symbol)
    if found:
        axes.level(figure, "risk, unedited", x=found[0]["unedited_malign"])
    labels = [
        f"{html.escape(way_title(row))}<br>{damage(row) if row['setting'] is not None else NONE}" for row in found
    ]
    return dots.finished(figure, labels, "refused", heading, below, row_px=56, bottom=90, axis=dots.SHARE)
