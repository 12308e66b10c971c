"""Which selectors can be told apart at one rate: differences of NLL between their LeRF masks, and log gaps."""

from __future__ import annotations

import html
from typing import Any, cast

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import formats, matrix, palette
from engine.stats.paired import mean_over_seeds

ENOUGH = 2.0  # standard errors, as the verdicts ask for
_SCHEMA = {"selector_a": pl.String, "selector_b": pl.String, **dict.fromkeys(("difference", "stderr", "z"), pl.Float64)}


def over_seeds(differences: pl.DataFrame, kind: str, rate: float) -> pl.DataFrame:
    """The table `differences` at one rate, seeds averaged (`mean_over_seeds`).

    kind: `lerf`, NLL of a minus NLL of b under LeRF; `gap`, NLL_MoRF minus NLL_LeRF, a and b the same selector.
    Columns: selector_a, selector_b, difference (nats per token), stderr, z = their quotient, null without an error.
    """
    part = differences.filter(pl.col("kind") == kind, (pl.col("rate") - rate).abs() < 1e-9)
    lines = []
    for key, pairs in part.group_by("selector_a", "selector_b", maintain_order=True):
        mean, stderr = mean_over_seeds(pairs["difference"].to_list(), pairs["stderr"].to_list())
        lines.append((*key, mean, stderr, mean / stderr if stderr else None))
    return pl.DataFrame(lines, schema=_SCHEMA, orient="row")


def pairs(found: pl.DataFrame, rate: float) -> go.Figure:
    """A cell per pair of selectors: NLL of its row's mask minus NLL of its column's; in brackets what |z| < 2 has."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found.iter_rows(named=True):
        a, b = row["selector_a"], row["selector_b"]
        back = {name: None if row[name] is None else -row[name] for name in ("difference", "z")}
        cells[a, b], cells[b, a] = row, row | back
    selectors = palette.in_order([*found["selector_a"], *found["selector_b"]])
    values = [[cells.get((a, b), {}).get("difference") for b in selectors] for a in selectors]
    hover = [[_hover(a, b, cells.get((a, b))) for b in selectors] for a in selectors]
    titles = [html.escape(palette.title(name)) for name in selectors]
    largest = cast(float, found["difference"].abs().max() or 0.0)
    figure = matrix.matrix(
        values, titles, titles, heading=f"NLL of the row's LeRF mask minus the column's at {formats.rate(rate)}",
        below=f"nats per token, below zero: the row's does less harm; in brackets: within {ENOUGH:g} standard errors",
        text=matrix.number, hover=hover, span=(-largest, largest), diverging=True,
    )  # fmt: skip
    for note in figure.layout.annotations:
        z = cells[selectors[int(note.y)], selectors[int(note.x)]]["z"]
        if z is None or abs(z) < ENOUGH:
            note.text = f"({note.text})"
    return figure


def table(found: pl.DataFrame) -> pl.DataFrame:
    """The same for people."""
    return found.select(
        pl.col("selector_a", "selector_b").map_elements(palette.title, return_dtype=pl.String).name.keep(),
        pl.col("difference").round(4),
        pl.col("stderr").round(4),
        pl.col("z").round(1),
    )


def _hover(a: str, b: str, row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    error = "no standard error" if row["stderr"] is None else f"± {row['stderr']:.4f}, z = {row['z'] or 0:.1f}"
    return html.escape(f"{palette.title(a)} − {palette.title(b)}: {row['difference']:+.4f} nats per token ({error})")
