"""Do selectors take the same rows? Overlaps and rank correlations of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import formats, matrix, palette
from dashboard.charts.matrix import Cell

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
        below="above the diagonal: attention; below it: MLP; bright: alike", text=matrix.number, hover=hover,
        span=(-0.8, 0.8) if above_chance else (0.0, 1.0), diverging=above_chance,
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
        values, titles, titles, heading="Spearman of the scores", below="over all rows of the model; dark: alike",
        text=matrix.number, hover=hover, span=(-1.0, 1.0), diverging=True,
    )  # fmt: skip
