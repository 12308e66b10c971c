"""Which rows do selectors take? Overlaps and rank correlations of pairs, shares of blocks."""

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from statistics import fmean

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, matrix, palette
from dashboard.charts.findings.rows import (
    HARDLY,
    beside_random,
    counts,
    early_to_late,
    hardly_alike,
    left_out,
    measured_by,
    most_alike,
)
from dashboard.charts.matrix import Cell

Pairs = dict[tuple[str, str], dict[str, float | None]]
Ends = tuple[float, float]
_COLOUR, _SYMBOLS = "#0E8A8A", ("circle", "square-open")  # of the sublayers: no selector's
_MORE, _NO_MORE = f"more than {HARDLY:g} ×, in one or both", f"at most {HARDLY:g} × in either"  # above such pairs
_GROUPS = ("spare late", "in between", "spare early")  # of `early_to_late`, above their lines
_BLOCKS = 10  # that have labels at most; as many have numbers in their cells, since a phone has no room for more


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
        if (number := pair.get(value)) is None:
            return None, ""
        return number, _told(a, b, f"{value.capitalize()} {number:.4f}", pair.get("expected_random"))

    rows, columns = selectors[1:], selectors[:-1]
    cells = [[cell(a, b) if j <= i else (None, "") for j, b in enumerate(columns)] for i, a in enumerate(rows)]
    # What no sentence names is pale; all have their colour where there are no others.
    told = {(i, j): counts(a, b) for i, a in enumerate(rows) for j, b in enumerate(columns) if j <= i}
    return matrix.matrix(
        [[number for number, _ in line] for line in cells], list(map(palette.title, columns)),
        list(map(palette.title, rows)), heading=heading, below=f"{below}; bright: alike{left_out(selectors)}",
        text=matrix.number, hover=[[words for _, words in line] for line in cells], span=ends,
        pale={cell for cell, named in told.items() if not named} if any(told.values()) else set(),
    )  # fmt: skip


def listed(sublayers: Mapping[str, pl.DataFrame], heading: str, below: str) -> go.Figure:
    """The overlap of every pair that a sentence names beside that of random rows, or by itself where that is not known,
    a mark per sublayer; most alike first, after them in grey those of `hardly_alike`.
    sublayers: selector_a, selector_b, jaccard, expected_random, by what the sublayer is called."""
    figure, pairs, near = go.Figure(), most_alike(sublayers), hardly_alike(sublayers)
    order: list[tuple[str, str] | str] = [pair for pair in pairs if pair not in near]
    if near:
        order = [_MORE, *order] * bool(order) + [_NO_MORE, *(pair for pair in pairs if pair in near)]
    known = beside_random(sublayers)
    by = measured_by(known)
    for a, b in pairs:
        values = known.filter(selector_a=a, selector_b=b)[by].to_list()
        axes.joined(figure, values, order.index((a, b)), width=1)
    for (title, table), symbol in zip(sublayers.items(), _SYMBOLS, strict=True):
        columns = ("selector_a", "selector_b", pl.col(by).alias("x"), "jaccard", "expected_random")
        rows = beside_random({title: table}).select(columns).rows()
        marks = [
            dots.Dot(order.index((a, b)), x, _told(a, b, f"{title}: Jaccard {value:.4f}", random))
            for a, b, x, value, random in rows
        ]
        colours = [palette.REFERENCE if row[:2] in near else _COLOUR for row in rows]
        dots.add(figure, title, marks, colours, symbol)
    title, ends = "rows in both masks, of those in either (Jaccard)", {"tickformat": ".0%"}
    if by == "times":
        figure.add_vrect(0, HARDLY, fillcolor=palette.REFERENCE, opacity=0.18, line_width=0, layer="below")
        axes.level(figure, "random rows", x=1.0, at="top")
        title, ends = "overlap (Jaccard) ÷ that expected of random rows", {"ticksuffix": " ×"}
    most = known[by].max()
    every = pl.concat(sublayers.values()).drop_nulls("jaccard")
    if known.height < every.height:
        below += left_out({*every["selector_a"], *every["selector_b"]}, "left out")
    return dots.finished(
        figure,
        [f"<b>{one}</b>" if isinstance(one, str) else " · ".join(map(palette.title, one)) for one in order],
        title, heading, below, row_px=max(20, min(34, 500 // max(len(order), 1))), bottom=90,
        axis={"range": [0, 1.06 * most if isinstance(most, float) and most else 1], **ends},
    )  # fmt: skip


def by_block(shares: pl.DataFrame, heading: str, below: str) -> go.Figure:
    """The share of each block's rows that a mask takes; selectors with most of early blocks on top.
    shares: selector, block, removed, rows, share."""
    blocks, groups = sorted(set(shares["block"])), early_to_late(shares)
    lines: list[tuple[str, str]] = []  # what stands beside it, selector
    for title, names in zip(_GROUPS, groups, strict=True):
        lines += [(f"<b>{title}</b>", "")] * bool(names and (groups[0] or groups[-1]))
        lines += [(palette.title(name), name) for name in names]
    colour, bar = matrix.around(shares)
    rows = {(row["selector"], row["block"]): row for row in shares.iter_rows(named=True)}
    table = [[rows.get((name, block), {}) for block in blocks] for _, name in lines]
    return matrix.matrix(
        [[row.get("share") for row in line] for line in table],
        matrix.thinned(list(map(str, blocks)), _BLOCKS), [label for label, _ in lines],
        heading=heading, below=below, text="{:.0%}".format if len(blocks) <= _BLOCKS else lambda _: "",
        hover=[
            [
                f"<b>{label}, block {row['block']}</b><br>{row['removed']:,.0f} of {row['rows']:,} rows removed "
                f"({row['share']:.1%})" if row else "" for row in line
            ] for (label, _), line in zip(lines, table, strict=True)
        ],
        span=(-1.0, 1.0), diverging=True, corner=("block, from the first to the last", ""), colour=colour, bar=bar,
    )  # fmt: skip


def _told(a: str, b: str, value: str, random: float | None) -> str:
    chance = f"<br>random masks of the same sizes: {random:.4f}" if axes.is_finite(random) else ""
    return f"<b>{palette.title(a)} and {palette.title(b)}</b><br>{value}{chance}"
