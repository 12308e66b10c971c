"""Which selectors can be told apart at one rate: differences of NLL between their LeRF masks, and log gaps."""

import html
from typing import Any, cast

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import formats, matrix, palette
from engine.stats.blocks import all_saturated, between_draws, mean_of_lines
from engine.stats.uncertainty import adjusted

LEVEL = 0.05  # of the adjusted p, as the verdicts ask for
_NUMBERS = ("difference", "stderr", "low", "high", "p_holm")
_SCHEMA = {
    "selector_a": pl.String, "selector_b": pl.String, **dict.fromkeys(_NUMBERS, pl.Float64), "saturated": pl.Boolean,
}  # fmt: skip


def over_seeds(
    differences: pl.DataFrame, kind: str, rate: float, draw_sweep: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The table `differences` at one rate, seeds averaged (`mean_of_lines`).
    kind: `lerf`, NLL of a minus NLL of b under LeRF; `gap`, NLL_MoRF minus NLL_LeRF, a and b the same selector.
    Columns: selector_a, selector_b, difference (nats per token), stderr, low and high (95%, Student's t), p_holm:
    two-sided, adjusted by Holm over all lines; null without an error, and where `saturated`: both masks destroy the
    model. draw_sweep: the calibration text's part."""
    part = differences.filter(pl.col("kind") == kind, (pl.col("rate") - rate).abs() < 1e-9)
    found, destroyed = {}, set()
    for key, lines in part.group_by("selector_a", "selector_b", maintain_order=True):
        a, b = cast("tuple[str, str]", key)
        orders = ("morf", "lerf") if kind == "gap" else ("lerf", "lerf")
        draws = between_draws(draw_sweep, rate, (a, orders[0]), (b, orders[1]))
        seeds = ["seed_a"] if kind == "gap" else ["seed_a", "seed_b"]
        found[a, b] = mean_of_lines(lines, "difference", seeds, draws)
        if all_saturated(lines):
            destroyed.add((a, b))
    p_values = {pair: one.p_differs for pair, one in found.items() if pair not in destroyed}
    p_holm = adjusted({pair: p for pair, p in p_values.items() if p is not None})
    rows = [
        (*pair, one.value, one.stderr, one.low, one.high, p_holm.get(pair), pair in destroyed)
        for pair, one in found.items()
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def apart(row: dict[str, Any]) -> bool:
    """Is this difference told apart from none?"""
    return row["p_holm"] is not None and row["p_holm"] <= LEVEL


def pairs(found: pl.DataFrame, rate: float) -> go.Figure:
    """A cell per pair of selectors: NLL of its row's mask minus its column's; in brackets what is not told apart."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found.iter_rows(named=True):
        a, b = row["selector_a"], row["selector_b"]
        back = {"difference": -row["difference"]}
        back |= {"low": None, "high": None} if row["low"] is None else {"low": -row["high"], "high": -row["low"]}
        cells[a, b], cells[b, a] = row, row | back
    selectors = palette.in_order([*found["selector_a"], *found["selector_b"]])
    values = [[cells.get((a, b), {}).get("difference") for b in selectors] for a in selectors]
    hover = [[_hover(a, b, cells.get((a, b))) for b in selectors] for a in selectors]
    titles = [html.escape(palette.title(name)) for name in selectors]
    figure = matrix.matrix(
        values, titles, titles, heading=f"NLL of the row's LeRF mask minus the column's at {formats.rate(rate)}",
        below="nats per token, below zero: the row's does less harm; in brackets: not told apart; colours by rank",
        text=matrix.number, hover=hover, span=(-1.0, 1.0), diverging=True,
        colour=matrix.signed_places([value for line in values for value in line]),
    )  # fmt: skip
    for note in figure.layout.annotations:
        if not apart(cells[selectors[int(note.y)], selectors[int(note.x)]]):
            note.text = f"({note.text})"
    return figure


def table(found: pl.DataFrame) -> pl.DataFrame:
    return found.select(
        *(formats.texts(found[name], palette.title).alias(name) for name in ("selector_a", "selector_b")),
        pl.col(*_NUMBERS).round(4),
    )


def _hover(a: str, b: str, row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    error = "no error is known"
    if row["low"] is not None:
        p = "both destroyed" if row["p_holm"] is None else f"p {row['p_holm']:.2g} after Holm"
        error = f"{row['low']:+.4f} to {row['high']:+.4f}, {p}"
    return html.escape(f"{palette.title(a)} − {palette.title(b)}: {row['difference']:+.4f} nats per token ({error})")
