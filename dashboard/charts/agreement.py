"""Do selectors take the same rows? Overlaps and rank correlations of pairs."""

from collections.abc import Sequence
from itertools import combinations, permutations
from statistics import fmean

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, formats, matrix, palette
from dashboard.charts.findings.rows import counts, left_out
from dashboard.charts.matrix import Cell

Pairs = dict[tuple[str, str], dict[str, float | None]]


def overlaps(jaccard: pl.DataFrame, rate: float, sublayer: str) -> Pairs:
    """Of one rate and sublayer, both orders of each pair: jaccard and expected_random."""
    part = jaccard.filter((pl.col("rate") - rate).abs() < 1e-9, pl.col("sublayer") == sublayer)
    return _both_ways(part, ("jaccard", "expected_random"))


def correlations(spearman: pl.DataFrame) -> Pairs:
    """Both orders of each pair: spearman."""
    return _both_ways(spearman, ("spearman",))


def by_likeness(found: Pairs, selectors: Sequence[str]) -> list[str]:
    """The selectors, those that rank alike side by side: clusters joined by their mean rho, each time with the ends
    that are most alike turned to each other. As they are where a pair has no number."""
    if any(not axes.is_finite(found.get(pair, {}).get("spearman")) for pair in permutations(selectors, 2)):
        return list(selectors)

    def rho(a: str, b: str) -> float:
        return found[a, b]["spearman"] or 0.0

    clusters = [[one] for one in selectors]
    while len(clusters) > 1:
        first, second = max(combinations(clusters, 2), key=lambda two: fmean(rho(a, b) for a in two[0] for b in two[1]))
        turned = [one + other for one in (first, first[::-1]) for other in (second, second[::-1])]
        clusters[clusters.index(first)] = max(turned, key=lambda one: rho(one[len(first) - 1], one[len(first)]))
        clusters.remove(second)
    return clusters[0] if clusters else []


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
    above_chance: the Jaccard less that of random masks of the same sizes."""
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
            told = f"<b>{palette.title(row)} and {palette.title(column)}</b>, {name}<br>Jaccard {value or 0:.4f}"
            random = "" if chance is None else f"<br>random masks of the same sizes: {chance:.4f}"
            hover[-1].append("" if value is None else told + random)
    titles = [palette.title(name) for name in selectors]
    return matrix.matrix(
        values, titles, titles,
        heading=f"Jaccard{' above chance' if above_chance else ''} of LeRF masks at {formats.rate(rate)}",
        below=f"upper right: attention; lower left: MLP; bright: alike{left_out(selectors)}",
        text=matrix.number, hover=hover, span=(-0.8, 0.8) if above_chance else (0.0, 1.0), diverging=above_chance,
        pale=_pale(selectors),
    )  # fmt: skip


def spearman_matrix(found: Pairs, selectors: Sequence[str]) -> go.Figure:
    """Spearman's rho of the scores over all rows, each pair once, below the diagonal."""
    values: list[list[Cell]] = [
        [found.get((a, b), {}).get("spearman") if j < i else None for j, b in enumerate(selectors)]
        for i, a in enumerate(selectors)
    ]
    hover = [
        [
            f"<b>{palette.title(a)} and {palette.title(b)}</b><br>Spearman {value:.4f}" if value is not None else ""
            for b, value in zip(selectors, line, strict=True)
        ]
        for a, line in zip(selectors, values, strict=True)
    ]
    titles = [palette.title(name) for name in selectors]
    drawn = [value for line in values for value in line if axes.is_finite(value)]
    return matrix.matrix(
        values, titles, titles, heading="Spearman of the scores",
        below=f"over all rows of the model; bright: alike{left_out(selectors)}",
        text=matrix.number, hover=hover, span=(min([0.0, *drawn]), 1.0), pale=_pale(selectors),
    )  # fmt: skip


def _pale(selectors: Sequence[str]) -> set[tuple[int, int]]:
    """The cells that no sentence names; all have their colour where there are no others."""
    cells = {(i, j): counts(a, b) for i, a in enumerate(selectors) for j, b in enumerate(selectors) if i != j}
    return {cell for cell, named in cells.items() if not named} if any(cells.values()) else set()
