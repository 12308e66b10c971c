"""Which rows do selectors take? Overlaps and rank correlations of pairs, shares of blocks."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, permutations
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, figure_size, matrix, palette
from dashboard.charts.findings.row_findings import HARDLY, beside_random, by_pair, counts, early_to_late, left_out
from engine.stats.limits import BASELINE

Pair = frozenset[str]
_COLOUR, _SYMBOLS = "#0E8A8A", ("circle", "square-open")  # of the sublayers: no selector's
_GROUPS = ("spare late", "in between", "spare early")  # of `early_to_late`, above their lines
_BLOCKS = 10  # that have labels at most; as many have numbers in their cells, since a phone has no room for more
_LARGE = 8  # columns: with up to so many, numbers are large


def by_likeness(alike: Mapping[Pair, float | None], selectors: Sequence[str]) -> list[str]:
    """The selectors, those that are alike side by side: clusters joined by their mean likeness, each time with the ends
    that are most alike turned to each other. As they are where a pair has no number."""
    near = {two: rho for pair, rho in alike.items() if axes.is_finite(rho) for two in permutations(pair)}
    if any(pair not in near for pair in permutations(selectors, 2)):
        return list(selectors)
    clusters = [[one] for one in selectors]
    while len(clusters) > 1:
        first, second = max(
            combinations(clusters, 2), key=lambda two: fmean(near[a, b] for a in two[0] for b in two[1])
        )
        turned = [one + other for one in (first, first[::-1]) for other in (second, second[::-1])]
        clusters[clusters.index(first)] = max(turned, key=lambda one: near[one[len(first) - 1], one[len(first)]])
        clusters.remove(second)
    return clusters[0] if clusters else []


def correlations(rankings: pl.DataFrame, heading: str, below: str) -> go.Figure:
    """Spearman's correlation of every pair once; pairs that no sentence names are pale, where there are others.
    rankings: selector_a, selector_b, spearman."""
    alike = {frozenset((a, b)): rho for a, b, rho in rankings["selector_a", "selector_b", "spearman"].iter_rows()}
    known = {pair: rho for pair, rho in alike.items() if axes.is_finite(rho)}
    named = {pair for pair in known if counts(*pair)} or known.keys()
    cells = {pair: (rho, f"Spearman {rho:.4f}", pair in named) for pair, rho in known.items()}
    below += "; strong colour: alike" + left_out(frozenset().union(*alike)) * (len(named) < len(known))
    return _triangle(alike, cells, matrix.number, heading, below)


def overlaps(sublayers: Mapping[str, pl.DataFrame], heading: str) -> go.Figure:
    """The larger overlap of both sublayers, of every pair that a sentence names; without colour where it is hardly more
    than that of random rows. sublayers: selector_a, selector_b, jaccard, expected_random, by title."""
    (pairs, by), words, alike = by_pair(sublayers), dict[Pair, list[str]](), dict[Pair, float]()
    for title, table in sublayers.items():
        for row in beside_random(table, every=True).iter_rows(named=True):
            pair = frozenset((row["selector_a"], row["selector_b"]))
            alike[pair] = max(row["jaccard"], alike.get(pair, 0.0))
            words.setdefault(pair, []).append(f"{title}: {_overlap(row)}")
    ends = {frozenset((a, b)): (value, near) for a, b, value, near in pairs.iter_rows()}
    cells = {pair: (value, "<br>".join(words[pair]), not near) for pair, (value, near) in ends.items()}
    below = (
        "Jaccard overlap ÷ that of random rows" if by == "times" else "rows in both masks, of those in either (Jaccard)"
    )
    scored = [title for title, table in sublayers.items() if beside_random(table).height]
    below += f", the larger of {' and '.join(scored)}" * (len(scored) > 1)
    below += f"; without colour: at most {HARDLY:g}×" * any(near for _, near in ends.values())
    below += left_out(frozenset().union(*alike), "left out") if len(cells) < len(alike) else ""
    selected = {pair: one for pair, one in alike.items() if BASELINE not in pair or pair in cells}
    return _triangle(selected, cells, "{:.1f}×".format if by == "times" else matrix.number, heading, below)


def _triangle(
    alike: Mapping[Pair, float | None], told: Mapping[Pair, tuple[float, str, bool]], text: Callable[[float], str],
    heading: str, below: str,
) -> go.Figure:  # fmt: skip
    """Every pair of the selectors in `alike`, which orders them, once; a dash where nothing is told.
    told: the number of a cell, what it says, has it a colour?"""
    selectors = by_likeness(alike, palette.in_order(frozenset().union(*alike)))
    rows, columns = selectors[1:], selectors[:-1]
    pairs = {(i, j): told.get(frozenset((a, b))) for i, a in enumerate(rows) for j, b in enumerate(columns[: i + 1])}
    cells = {place: one for place, one in pairs.items() if one}
    bright = [value for value, _, coloured in told.values() if coloured] or [0.0, 1.0]
    hover = {
        (i, j): f"<b>{palette.title(rows[i])} and {palette.title(columns[j])}</b><br>{words}"
        for (i, j), (_, words, _) in cells.items()
    }
    places = [[(i, j) for j in range(len(columns))] for i in range(len(rows))]
    return matrix.matrix(
        [[cells[place][0] if place in cells else None for place in line] for line in places],
        list(map(palette.title, columns)), list(map(palette.title, rows)), heading=heading, below=below, text=text,
        hover=[[hover.get(place, "") for place in line] for line in places], span=(min(bright), max(bright)),
        scale=matrix.GREY_TO_TEAL, pale={place for place, (*_, coloured) in cells.items() if not coloured},
        number_px=16 if len(columns) <= _LARGE else figure_size.CELL_PX, blank=pairs.keys() - cells.keys(),
    )  # fmt: skip


def listed(sublayers: Mapping[str, pl.DataFrame], heading: str, below: str) -> go.Figure:
    """The overlap of every pair that a sentence names beside that of random rows, or by itself where that is not known,
    a mark per sublayer; most alike first. sublayers: as `overlaps`."""
    figure, (pairs, by) = go.Figure(), by_pair(sublayers)
    order = pairs.select("selector_a", "selector_b").rows()
    tables = {title: beside_random(table) for title, table in sublayers.items()}
    known = pl.concat(tables.values())
    pair_values: dict[int, list[float]] = {}
    for a, b, value in known.select("selector_a", "selector_b", by).iter_rows():
        pair_values.setdefault(order.index((a, b)), []).append(value)
    axes.joined(figure, pair_values, width=1)
    for (title, table), symbol in zip(tables.items(), _SYMBOLS, strict=False):
        marks = [
            dots.Dot(
                order.index((row["selector_a"], row["selector_b"])), row[by],
                f"<b>{palette.title(row['selector_a'])} and {palette.title(row['selector_b'])}</b><br>"
                f"{title}: {_overlap(row)}",
            )
            for row in table.iter_rows(named=True)
        ]  # fmt: skip
        dots.add(figure, title, marks, [_COLOUR] * len(marks), symbol)
    title, ends = "rows in both masks, of those in either (Jaccard)", {"tickformat": ".0%"}
    if by == "times":
        figure.add_vrect(0, HARDLY, fillcolor=palette.REFERENCE, opacity=0.18, line_width=0, layer="below")
        axes.level(figure, "random rows", x=1.0, at="top")
        title, ends = "overlap ÷ that of random rows", {"ticksuffix": " ×"}
    most = known[by].max()
    return dots.finished(
        figure, [" · ".join(map(palette.title, pair)) for pair in order], title, heading, below,
        row_px=max(20, min(34, 500 // max(len(order), 1))), bottom=90,
        axis={"range": [0, 1.06 * most if isinstance(most, float) and most else 1], **ends},
    )  # fmt: skip


def _overlap(row: Mapping[str, Any]) -> str:
    told, random, times = f"Jaccard {row['jaccard']:.4f}", row["expected_random"], row["times"]
    told += f"; random rows of the same sizes {random:.4f}" if axes.is_finite(random) else ""
    return told + (f" ({times:.2f}×)" if axes.is_finite(times) else "")


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
        span=(-1.0, 1.0), scale=matrix.SPARED_TO_GONE, colour=colour, bar=bar,
        corner=("block, from the first to the last", ""),
    )  # fmt: skip
