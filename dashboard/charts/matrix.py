"""Tables of numbers as coloured cells with the number in each: pairs of selectors, blocks by projections."""

import functools
import html
import math
import textwrap
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.colors import sample_colorscale

from dashboard.charts import axes, figure_size, formats, palette

SEQUENTIAL, DIVERGING = "Viridis", "PuOr"  # both keep their order for people who see fewer colours
SPARED_TO_GONE = ("#9AA0B2", "#F1EDE9", "#BC4A0B")  # shares of rows removed: grey below chance, loud above
GREY_TO_TEAL = ("#C3D1D1", "#55ABA5", "#006B66")  # nothing to much, on white and on dark
_ROW_PX, _BAR_PX = 34, 44
_BROKEN_UP_TO = 7  # columns: more of them are turned on half a page, where two lines run into the next label
Cell = float | None
REACH_PX = 100  # a click anywhere in a cell finds the mark in its middle
NUMBERED = 16  # blocks: of more, numbers stand in the hover only, the colours show the pattern, some have labels
OUTLINE = "#E52EC1"  # of a cell: on none of the scale's colours, on white and on dark
Place = tuple[int, str]  # block, projection
SUBLAYER_TITLES = {"attention": "Attention", "mlp": "MLP"}
_WORDS = {"q": "query", "k": "key", "v": "value", "o": "output"}


def matrix(
    values: Sequence[Sequence[Cell]], columns: Sequence[str], rows: Sequence[str], *, heading: str, below: str = "",
    text: Callable[[float], str], hover: Sequence[Sequence[str]], span: tuple[float, float],
    colour: Callable[[float], float] | Sequence[Callable[[float], float]] = float,
    scale: str | Sequence[str] = SEQUENTIAL,
    clickable: bool = False, corner: tuple[str, str] = ("", ""),
    pale: Container[tuple[int, int]] = (), bar: Mapping[str, Any] | None = None,
    number_px: int = figure_size.CELL_PX, blank: Iterable[tuple[int, int]] = (),
) -> go.Figure:  # fmt: skip
    """values, hover: [rows, columns], the first row on top; None and what is not finite stays empty.

    span: the values at the ends of the colour scale; where they are equal, all cells have its middle. colour: what of a
    value its colour shows, within `span`; one function for all rows or one for each.
    corner: titles of the column and the row axis. pale: cells [row, column] that have a number and no colour.
    bar: what else plotly is to know of the bar that tells the colours, None for no bar. blank: cells with a dash.
    clickable: marks without colour over the cells, since plotly selects points only. Their customdata is
    [row, column, hover text]."""
    shown = [[axes.finite(value) for value in line] for line in values]
    low, high = span
    if low == high:
        low, high = low - (abs(low) or 1.0), high + (abs(high) or 1.0)
    shades = [colour] * len(rows) if callable(colour) else list(colour)
    figure = go.Figure().add_heatmap(
        z=[
            [None if v is None or (i, j) in pale else shades[i](v) for j, v in enumerate(line)]
            for i, line in enumerate(shown)
        ],
        x=list(range(len(columns))), y=list(range(len(rows))), zmin=low, zmax=high,
        colorscale=scale, showscale=bar is not None,
        colorbar={"thickness": 12, "outlinewidth": 0, **(bar or {})}, xgap=2 if len(columns) <= NUMBERED else 1, ygap=2,
        customdata=hover, hovertemplate="%{customdata}<extra></extra>", hoverongaps=False,
    )  # fmt: skip
    if clickable:
        cells = [(i, j) for i in range(len(rows)) for j in range(len(columns)) if shown[i][j] is not None]
        figure.add_scatter(
            x=[j for _, j in cells], y=[i for i, _ in cells], mode="markers", showlegend=False,
            marker={"size": 24, "symbol": "square", "opacity": 0.0},
            selected={"marker": {"opacity": 0.0}}, unselected={"marker": {"opacity": 0.0}},
            customdata=[[i, j, hover[i][j]] for i, j in cells], hovertemplate="%{customdata[2]}<extra></extra>",
        )  # fmt: skip
    # Annotations, since a heatmap's own text shrinks with its cells and a selection would fade other marks. Set at
    # once: plotly checks all of them again for each one added.
    known = [(i, j, value) for i, line in enumerate(shown) for j, value in enumerate(line) if value is not None]
    readable = _readable([(shades[i](value) - low) / (high - low) for i, _, value in known], scale)
    colours = [palette.REFERENCE if cell[:2] in pale else one for cell, one in zip(known, readable, strict=True)]
    numbers = [(i, j, text(value), colour) for (i, j, value), colour in zip(known, colours, strict=True)]
    notes = [
        {"x": j, "y": i, "text": label, "showarrow": False, "font": {"size": number_px, "color": colour}}
        for i, j, label, colour in (*numbers, *((*cell, "–", palette.REFERENCE) for cell in blank)) if label
    ]  # fmt: skip
    count = len(columns)
    half = functools.partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
    labels = ["<br>".join(half(name, len(name) // 2 + 1)) if count <= _BROKEN_UP_TO else name for name in columns]
    lines = max((name.count("<br>") + 1 for name in labels), default=1)
    bottom = 24 + 20 * lines
    figure.update_xaxes(
        **axes.titled(corner[0], tickvals=list(range(count)), ticktext=labels, automargin=True, showgrid=False),
        autotickangles=[0, -45], range=[-0.5, count - 0.5],  # turned only where the browser finds no room
    )  # fmt: skip
    figure.update_yaxes(**axes.places(rows), showgrid=False, title={"text": corner[1] or None})
    title = f"{heading}<br><sub>{below}</sub>" if below else heading
    height = 70 + bottom + _ROW_PX * max(len(rows), 4)
    figure.update_layout(
        title={"text": title, "x": 0, "y": 1 - 20 / height, "yanchor": "top"}, annotations=notes,
        height=height, margin={"l": 10, "r": 10, "t": 66, "b": bottom}, dragmode=False, hovermode="closest",
    )  # fmt: skip
    return figure


def places(values: Sequence[Cell]) -> Callable[[float], float]:
    """value -> its place among these from 0 to 1, equal ones in the middle of theirs: no extreme moves the rest."""
    ordered = sorted(value for value in map(axes.finite, values) if value is not None)
    last = max(len(ordered) - 1, 1)
    return lambda value: (bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / 2 / last


def signed_places(values: Sequence[Cell]) -> Callable[[float], float]:
    """value -> the place of its size among these, with its sign: from -1 to 1, around 0."""
    place_of = places([None if value is None else abs(value) for value in values])
    return lambda value: math.copysign(place_of(abs(value)), value) if value else 0.0


def thinned(labels: Sequence[str], most: int) -> list[str]:
    """At most so many of the labels, every second or third; the others are empty."""
    step = max(-(-len(labels) // most), 1)
    return [label if place % step == 0 else "" for place, label in enumerate(labels)]


def around(layers: pl.DataFrame) -> tuple[Callable[[float], float], dict[str, Any]]:
    """What colours of shares show, -1 to 1: 0 at that of all rows, as by chance; and the ticks of their bar.
    layers: rows, and how many of them are removed."""
    removed, rows = layers.select(pl.col("removed", "rows").sum()).row(0)
    fair = min(max(removed / max(rows, 1), 1e-9), 1 - 1e-9)
    words = ["0%: spared", f"{formats.rate(fair)}:<br>chance", "100%: gone"]
    bar = {"tickvals": [-1, 0, 1], "ticktext": words}
    return lambda share: (share - fair) / (fair if share < fair else 1 - fair), bar


def number(value: float) -> str:
    """Two decimals, `0.63`, `−0.05`, without a negative zero."""
    shown = f"{value:.2f}"
    return "0.00" if shown == "-0.00" else shown.replace("-", "−")


def cells(
    frame: pl.DataFrame, blocks: Sequence[int], projections: Sequence[str], *, heading: str, below: str, kind: str,
    outlined: Collection[Place] = (),
) -> go.Figure:  # fmt: skip
    """Blocks from top to bottom, projections from left to right under their sublayers; numbers in the cells of up to
    `NUMBERED` blocks. frame: columns block, projection, sublayer, rows, value, ...
    kind: `score`, `share` (0 to 1), `difference` (around 0, percentile points). The colours of scores and differences
    are places among all cells: real models have single cells far above the rest. outlined: cells with a frame."""
    by_cell = {(row["block"], row["projection"]): row for row in frame.iter_rows(named=True)}
    table = [[by_cell.get((block, name)) for name in projections] for block in blocks]
    values = [[None if row is None else row["value"] for row in line] for line in table]
    finite = [row["value"] for row in by_cell.values() if axes.is_finite(row["value"])] or [0.0]
    least, most, far = min(finite), max(finite), max(map(abs, finite))
    fair, bar = around(frame) if kind == "share" else (float, {})
    text, colour, low, ends = {
        "share": ("{:.0%}", fair, -1.0, ()),
        "score": ("{:.3g}", places(finite), 0.0, (f"{least:.2g}", f"{most:.2g}")),
        "difference": ("{:+.0f}", signed_places(finite), -1.0, (f"−{far:.0f}", f"+{far:.0f}")),
    }[kind]
    labels = {name: plain(name).removesuffix(f" ({name})") for name in projections}
    if kind == "share":  # with the share of all rows of the projection
        sums = frame.group_by("projection").agg(pl.col("removed").sum() / pl.col("rows").sum())
        labels = {name: f"{labels[name]} {share:.0%}" for name, share in sums.iter_rows()}
    figure = matrix(
        values, [labels[name] for name in projections], thinned([f"block {block}" for block in blocks], NUMBERED),
        heading=heading, below=below,
        text=lambda value: text.format(value).replace("-", "−") if len(blocks) <= NUMBERED else "",
        scale=SPARED_TO_GONE if kind == "share" else DIVERGING if low < 0 else SEQUENTIAL,
        span=(low, 1.0), colour=colour,
        bar={"tickvals": [low, 1.0], "ticktext": ends} if ends else bar,
        hover=[["" if row is None else _said(row, kind) for row in line] for line in table], clickable=True,
    )  # fmt: skip
    frames = [
        {
            "type": "rect", "x0": column - 0.47, "x1": column + 0.47, "y0": line - 0.46, "y1": line + 0.46,
            "line": {"color": OUTLINE, "width": 3},
        }
        for line, block in enumerate(blocks) for column, name in enumerate(projections) if (block, name) in outlined
    ]  # fmt: skip
    sublayers, grey = dict(frame.select("projection", "sublayer").iter_rows()), {"color": palette.REFERENCE}
    for name, group in groupby(range(len(projections)), lambda column: sublayers[projections[column]]):
        columns = list(group)
        line = {"x0": columns[0] - 0.47, "x1": columns[-1] + 0.47, "y0": 1, "y1": 1, "yref": "paper", "type": "line"}
        label = {"text": SUBLAYER_TITLES.get(name, str(name)), "yanchor": "bottom", "font": grey}
        label |= {"textposition": "start", "xanchor": "left"}  # on a phone the figure's buttons are at the other end
        frames.append(line | {"label": label, "line": grey | {"width": 2}})
    figure.update_layout(hoverdistance=REACH_PX, shapes=frames)
    if kind == "share":  # below, or a phone's columns would be too narrow for their names
        below_all = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "thickness": 10, "len": 0.8}
        below_all["ticktext"] = [word.replace("<br>", " ") for word in bar["ticktext"]]
        figure.update_traces(colorbar=below_all, selector={"type": "heatmap"})
        figure.update_layout(height=figure.layout.height + _BAR_PX, margin_b=figure.layout.margin.b + _BAR_PX)
    return figure


def plain(projection: str, noun: str = "") -> str:
    """`query (q_proj)`, with a noun `query rows (q_proj)`; a projection of another name is called by that."""
    stem = projection.removesuffix("_proj")
    return f"{_WORDS.get(stem, stem)}{noun}" + f" ({projection})" * (stem != projection)


def _said(row: dict[str, float], kind: str) -> str:
    said = {
        "score": lambda: f"mean score {row['value']:.6g}",
        "share": lambda: f"{row['removed']:,} removed ({row['value']:.1%})",
        "difference": lambda: (
            f"mean difference {row['value']:+.2f} percentile points<br>mean absolute difference {row['apart']:.2f}"
        ),
    }[kind]()
    where = f"block {row['block']}, {html.escape(plain(str(row['projection'])))}"
    return f"<b>{where}</b><br>{row['rows']:,} rows<br>{said}"


def _readable(shares: Sequence[float], scale: str | Sequence[str]) -> list[str]:
    """Black or white, whichever has the higher contrast (WCAG 2) at each of these shares of the colour scale."""
    inside = [min(max(share, 0.0), 1.0) for share in shares]
    shades = sample_colorscale(scale, inside, colortype="tuple") if inside else []
    chosen = []
    for colour in shades:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        chosen.append("#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#FFFFFF")
    return chosen
