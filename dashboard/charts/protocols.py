"""Protocols: who is before whom in how many of them."""

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import palette
from dashboard.charts.matrix import matrix

UNITS = {"row": "Rows", "neuron": "Neurons", "head": "Heads", "expert": "Experts"}
Row = Mapping[str, Any]


def shares(claims: pl.DataFrame) -> tuple[list[str], dict[tuple[str, str], tuple[int, int]]]:
    """The selectors in the usual order, and of (a, b) how many protocols put a before b, and of how many.
    claims: `protocols_claims`."""
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
    of, counts = claims.height, dict(claims["claim_verdict"].value_counts().iter_rows())
    every, overturned = counts.get("all", 0), counts.get("overturned", 0)
    return (
        f"{every} of {of} orders {'holds' if every == 1 else 'hold'} under every protocol; {overturned} "
        f"{'turns' if overturned == 1 else 'turn'} around under some"
    )
