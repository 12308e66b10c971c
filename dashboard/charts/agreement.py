"""Do selectors take the same rows? Overlaps and rank correlations of pairs."""

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, matrix, palette
from dashboard.charts.findings.rows import counted, counts, left_out, most_alike
from dashboard.charts.matrix import Cell

Pairs = dict[tuple[str, str], dict[str, float | None]]
Ends = tuple[float, float]
_COLOUR, _SYMBOLS = "#0E8A8A", ("circle", "square-open")  # of the sublayers: no selector's


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


def both_ways(frame: pl.DataFrame, *columns: str) -> Pairs:
    """These columns of every pair, under both orders of it."""
    found: Pairs = {}
    for row in frame.iter_rows(named=True):
        values = {name: row[name] for name in columns}
        found[row["selector_a"], row["selector_b"]] = found[row["selector_b"], row["selector_a"]] = values
    return found


def span(of_figures: Sequence[Pairs], value: str) -> Ends:
    """The ends of the colours of all these figures: the least and the largest number that a sentence names."""
    pairs = [(counts(*pair), numbers[value]) for figure in of_figures for pair, numbers in figure.items()]
    known = [(named, number) for named, number in pairs if axes.is_finite(number)] or [(True, 0.0), (True, 1.0)]
    coloured = [number for named, number in known if named] or [number for _, number in known]
    return min(coloured), max(coloured)


def triangle(pairs: Pairs, selectors: Sequence[str], value: str, heading: str, below: str, ends: Ends) -> go.Figure:
    """`value` of every pair once: a triangle. ends: of the colours (`span`)."""

    def cell(a: str, b: str) -> tuple[Cell, str]:
        pair = pairs.get((a, b), {})
        number, random = pair.get(value), pair.get("expected_random")
        if number is None:
            return None, ""
        chance = f"<br>random masks of the same sizes: {random:.4f}" if random is not None else ""
        return number, f"<b>{palette.title(a)} and {palette.title(b)}</b><br>{value.capitalize()} {number:.4f}{chance}"

    rows, columns = selectors[1:], selectors[:-1]
    cells = [[cell(a, b) if j <= i else (None, "") for j, b in enumerate(columns)] for i, a in enumerate(rows)]
    return matrix.matrix(
        [[number for number, _ in line] for line in cells], list(map(palette.title, columns)),
        list(map(palette.title, rows)), heading=heading, below=f"{below}; bright: alike{left_out(selectors)}",
        text=matrix.number, hover=[[words for _, words in line] for line in cells], span=ends,
        pale=_pale(rows, columns),
    )  # fmt: skip


def listed(sublayers: Mapping[str, pl.DataFrame], heading: str, below: str) -> go.Figure:
    """The share of rows in common of every pair that a sentence names, a mark per sublayer; most alike first.
    sublayers: selector_a, selector_b, jaccard, expected_random, by what the sublayer is called."""
    figure, order = go.Figure(), most_alike(sublayers)
    tables = {title: counted(table.drop_nulls("jaccard")) for title, table in sublayers.items()}
    known = pl.concat(tables.values())
    for place, (a, b) in enumerate(order):
        axes.joined(figure, known.filter(selector_a=a, selector_b=b)["jaccard"].to_list(), place, width=1)
    for (title, table), symbol in zip(tables.items(), _SYMBOLS, strict=True):
        rows = table.iter_rows(named=True)
        marks = [
            dots.Dot(order.index((row["selector_a"], row["selector_b"])), row["jaccard"], _told(row, title))
            for row in rows
        ]
        dots.add(figure, title, marks, _COLOUR, symbol)
    if known["expected_random"].count():
        figure.add_vrect(
            known["expected_random"].min(), known["expected_random"].max(), fillcolor=palette.REFERENCE, opacity=0.18,
            line_width=0, layer="below", annotation_position="top left",
            annotation={"text": "random rows, from pair to pair", "font": {"color": palette.REFERENCE}},
        )  # fmt: skip
    most = known["jaccard"].max()
    every = pl.concat(sublayers.values()).drop_nulls("jaccard")
    if known.height < every.height:
        below += left_out({*every["selector_a"], *every["selector_b"]}, "left out")
    return dots.finished(
        figure, [" · ".join(map(palette.title, pair)) for pair in order],
        "rows in both masks, of those in either (Jaccard)", heading, below,
        row_px=max(20, min(34, 500 // max(len(order), 1))), bottom=90,
        axis={"range": [0, 1.06 * most if isinstance(most, float) and most else 1], "tickformat": ".0%"},
    )  # fmt: skip


def _told(row: Mapping[str, Any], place: str) -> str:
    random = row["expected_random"]
    chance = f"<br>random masks of the same sizes: {random:.4f}" if axes.is_finite(random) else ""
    names = " and ".join(map(palette.title, (row["selector_a"], row["selector_b"])))
    return f"<b>{names}</b><br>{place}: Jaccard {row['jaccard']:.4f}{chance}"


def _pale(rows: Sequence[str], columns: Sequence[str]) -> set[tuple[int, int]]:
    """The cells that no sentence names; all have their colour where there are no others."""
    cells = {(i, j): counts(a, b) for i, a in enumerate(rows) for j, b in enumerate(columns) if j <= i}
    return {cell for cell, named in cells.items() if not named} if any(cells.values()) else set()
