"""Do selectors take the same rows? Overlaps and rank correlations of pairs, and two masks side by side."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import formats, matrix, palette
from dashboard.charts.matrix import Cell

Row = dict[str, Any]
Pairs = dict[tuple[str, str], dict[str, float | None]]


def overlaps(jaccard: pl.DataFrame, rate: float, sublayer: str) -> Pairs:
    """Of one rate and sublayer, both orders of each pair: jaccard and expected_random."""
    part = jaccard.filter((pl.col("rate") - rate).abs() < 1e-9, pl.col("sublayer") == sublayer)
    return _both_ways(part, ("jaccard", "expected_random"))


def correlations(spearman: pl.DataFrame) -> Pairs:
    """Both orders of each pair: spearman."""
    return _both_ways(spearman, ("spearman",))


def _both_ways(frame: pl.DataFrame, columns: Sequence[str]) -> Pairs:
    found: Pairs = {}
    for row in frame.iter_rows(named=True):
        values = {name: row[name] for name in columns}
        found[row["selector_a"], row["selector_b"]] = found[row["selector_b"], row["selector_a"]] = values
    return found


def triangles(
    attention: Pairs, mlp: Pairs, selectors: Sequence[str], rate: float, *, above_chance: bool = False
) -> go.Figure:
    """Jaccard of LeRF masks: attention above the diagonal, MLP below it.

    above_chance: the Jaccard less that of random masks of the same sizes.
    """
    values: list[list[Cell]] = []
    hover: list[list[str]] = []
    for i, row in enumerate(selectors):
        values.append([])
        hover.append([])
        for j, column in enumerate(selectors):
            name, found = ("attention", attention) if j > i else ("MLP", mlp)
            pair = found.get((row, column), {}) if i != j else {}
            value, chance = pair.get("jaccard"), pair.get("expected_random")
            if above_chance:
                values[-1].append(None if value is None or chance is None else value - chance)
            else:
                values[-1].append(value)
            hover[-1].append(_pair_text(row, column, name, value, chance))
    titles = [palette.title(name) for name in selectors]
    return matrix.matrix(
        values, titles, titles,
        heading=f"Jaccard{' above chance' if above_chance else ''} of LeRF masks at {formats.rate(rate)}",
        below="above the diagonal: attention; below it: MLP", text=matrix.number, hover=hover,
        span=(-0.8, 0.8) if above_chance else (0.0, 1.0), diverging=above_chance, clickable=True,
    )  # fmt: skip


def _pair_text(a: str, b: str, where: str, value: float | None, chance: float | None) -> str:
    if value is None:
        return ""
    lines = [f"<b>{palette.title(a)} and {palette.title(b)}</b>, {where}", f"Jaccard {value:.4f}"]
    if chance is not None:
        lines.append(f"random masks of the same sizes: {chance:.4f}")
    return "<br>".join(lines)


def spearman_matrix(found: Pairs, selectors: Sequence[str]) -> go.Figure:
    """Spearman's rho of the scores over all rows; 1 on the diagonal is left empty."""
    values: list[list[Cell]] = [
        [found.get((a, b), {}).get("spearman") if a != b else None for b in selectors] for a in selectors
    ]
    hover = [
        [
            f"<b>{palette.title(a)} and {palette.title(b)}</b><br>Spearman {value:.4f}" if value is not None else ""
            for b, value in zip(selectors, line, strict=True)
        ]
        for a, line in zip(selectors, values, strict=True)
    ]
    titles = [palette.title(name) for name in selectors]
    return matrix.matrix(
        values, titles, titles, heading="Spearman of the scores", below="over all rows of the model",
        text=matrix.number, hover=hover, span=(-1.0, 1.0), diverging=True, clickable=True,
    )  # fmt: skip


def removed_share(counts: pl.DataFrame, column: str, heading: str, below: str = "") -> go.Figure:
    """Share of each layer's rows, by block and projection. counts: block, projection, rows and `column` (rows)."""

    def share(cell: Row) -> Cell:
        return cell[column] / cell["rows"] if cell["rows"] else None

    def said(cell: Row) -> str:
        return f"{_layer(cell)}<br>{cell[column]:,.6g} of {cell['rows']:,} rows"

    return _by_layer(counts, share, said, heading=heading, below=below, text=lambda value: f"{value:.0%}")


def layer_jaccard(counts: pl.DataFrame, names: tuple[str, str]) -> go.Figure:
    """Jaccard of two masks in every layer (`rankings.overlap`); empty where neither takes a row."""

    def said(cell: Row) -> str:
        value = "no row in either" if cell["jaccard"] is None else f"Jaccard {cell['jaccard']:.4f}"
        return (
            f"{_layer(cell)} ({cell['rows']:,} rows)<br>{value}<br>"
            f"both {cell['both']:,} · {names[0]} {cell['first']:,} · {names[1]} {cell['second']:,}"
        )

    heading = f"Jaccard of {names[0]} and {names[1]} in every layer"
    below = "empty: neither removes a row there"
    return _by_layer(counts, itemgetter("jaccard"), said, heading=heading, below=below, text=matrix.number)


def _layer(cell: Row) -> str:
    return f"<b>block {cell['block']}, {html.escape(cell['projection'])}</b>"


def _by_layer(
    counts: pl.DataFrame, value: Callable[[Row], Cell], said: Callable[[Row], str], **looks: Any
) -> go.Figure:
    """Blocks down, projections across: a value and a hover for every row of `counts`, nothing where there is none."""
    projections = counts["projection"].unique(maintain_order=True).to_list()
    blocks = sorted(counts["block"].unique().to_list())
    at = {(row["block"], row["projection"]): row for row in counts.iter_rows(named=True)}
    cells = [[at.get((block, projection)) for projection in projections] for block in blocks]
    values = [[value(cell) if cell else None for cell in line] for line in cells]
    hover = [[said(cell) if cell else "" for cell in line] for line in cells]
    labels = [str(block) for block in blocks]
    return matrix.matrix(values, projections, labels, hover=hover, span=(0.0, 1.0), corner=("", "block"), **looks)
