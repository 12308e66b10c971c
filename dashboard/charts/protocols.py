"""Protocols: who is before whom in how many of them, and one area per selector and intervention."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, palette
from dashboard.charts.matrix import matrix

UNITS = {"row": "Rows", "neuron": "Neurons", "head": "Heads", "expert": "Experts"}
METRICS = {"nll": "NLL", "kl": "KL to the unedited model", "top1": "Top-1 agreement"}
_SYMBOLS = ("circle", "diamond", "square", "cross", "x", "triangle-up")
Row = Mapping[str, Any]


def shares(claims: pl.DataFrame) -> tuple[list[str], dict[tuple[str, str], tuple[int, int]]]:
    """The selectors in the usual order, and of (a, b) how many protocols put a before b, and of how many.

    claims: `protocols_claims`.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in claims.iter_rows(named=True):
        a, b, of = row["selector_a"], row["selector_b"], row["protocols"]
        found[a, b], found[b, a] = (row["protocols_for"], of), (row["protocols_against"], of)
    return palette.in_order([name for pair in found for name in pair]), found


def order_matrix(claims: pl.DataFrame, heading: str) -> go.Figure:
    """Rows before columns: the share of protocols that put them so."""
    names, found = shares(claims)
    titles = [palette.title(name) for name in names]

    def told(a: str, b: str) -> str:
        if (a, b) not in found:
            return ""
        count, of = found[a, b]
        return f"<b>{palette.title(a)}</b> before <b>{palette.title(b)}</b><br>under {count} of {of} protocols"

    values = [[found[a, b][0] / found[a, b][1] if (a, b) in found else None for b in names] for a in names]
    return matrix(
        values, titles, titles, heading=heading, below="share of protocols that put the row before the column",
        text=lambda value: f"{value:.0%}", hover=[[told(a, b) for b in names] for a in names], span=(0.0, 1.0),
        corner=("", "before"),
    )  # fmt: skip


def heading(claims: pl.DataFrame) -> str:
    """What the claims say together."""
    of, counts = claims.height, dict(claims["claim_verdict"].value_counts().iter_rows())
    every, overturned = counts.get("all", 0), counts.get("overturned", 0)
    return (
        f"{every} of {of} orders {'holds' if every == 1 else 'hold'} under every protocol; {overturned} "
        f"{'turns' if overturned == 1 else 'turn'} around under some"
    )


def areas(table: pl.DataFrame, heading_text: str, below: str) -> go.Figure:
    """Per selector a mark with its interval for every intervention. table: `protocols_areas` of one unit and metric."""
    selectors = palette.in_order(table["selector"].to_list())
    looks = [palette.style(name) for name in selectors]
    interventions = table["intervention"].unique(maintain_order=True).to_list()
    rows = {(row["selector"], row["intervention"]): row for row in table.iter_rows(named=True)}
    figure = go.Figure()
    for name, symbol, shift in zip(interventions, cycle(_SYMBOLS), dots.shifts(len(interventions)), strict=False):
        mine = [rows.get((selector, name), {}) for selector in selectors]
        marks = [
            dots.Dot(
                place + shift, row.get("area"), f"<b>{look.title}</b>, {name}<br>{area_text(row)}",
                row.get("area_low"), row.get("area_high"),
            )
            for place, (look, row) in enumerate(zip(looks, mine, strict=True))
        ]  # fmt: skip
        dots.add(figure, name, marks, [look.colour for look in looks], symbol, size=10)
    figure.add_vline(0, line=palette.DOTTED)
    title = "area between MoRF and LeRF / random's area"
    titles = [look.title for look in looks]
    return dots.finished(figure, titles, title, heading_text, below, row_px=38, bottom=110)


def best(table: pl.DataFrame) -> list[tuple[str, str]]:
    """Per intervention the selector with the largest area, where there is one."""
    found = []
    for intervention in table["intervention"].unique(maintain_order=True):
        own = table.filter(pl.col("area").is_finite(), intervention=intervention)
        if own.height:
            found.append((intervention, own.sort("area", descending=True, maintain_order=True)["selector"][0]))
    return found


def area_text(row: Row) -> str:
    """`1.23 (1.10 to 1.36)`, `–` where there is none."""
    value, low, high = (axes.finite(row.get(name)) for name in ("area", "area_low", "area_high"))
    if value is None:
        return "–"
    shown = f"{value:.2f}" if low is None or high is None else f"{value:.2f} ({low:.2f} to {high:.2f})"
    return shown.replace("-", "−")
