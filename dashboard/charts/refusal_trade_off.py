"""The grid of refusal edits: malign against benign refusal."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, figure_size, formats, matrix, palette
from dashboard.charts.formats import LN10
from dashboard.charts.lines import TOP, finished, perplexity_scale
from dashboard.charts.refusal_values import Row, percent, strength

_SMALLEST_PX, _LARGEST_PX = 8.0, 20.0
_TICKS = 5
_ALIKE = 0.9  # share of edits with one and the same benign refusal from which that axis would carry nothing
_HEIGHT, _BOTTOM = 600, 180  # pixels; below the plot: axis title, colour bar, legend


def stacked(cells: pl.DataFrame) -> bool:
    """Do nearly all edits refuse the same share of harmless prompts, while their perplexities differ?"""
    known = cells["benign"].drop_nulls()
    if cells.height < 2 or cells["nll"].n_unique() < 2 or known.is_empty():
        return False
    return int(known.value_counts()["count"].max()) >= _ALIKE * cells.height  # type: ignore[arg-type]


def trade_off(cells: pl.DataFrame, unedited: pl.DataFrame, chosen: str, benign_limit: float, heading: str) -> go.Figure:
    """Malign against benign refusal of every cell, symbol by selector, colour and size by perplexity.

    Where benign refusal does not vary (`stacked`), perplexity is the horizontal axis and k gives colour and size.
    cells: rows of `refusals.cells` with rates. Operating points have a ring in the selector's colour;
    they and the `chosen` cell have Wilson's intervals. The box: benign refusal within the limit.
    customdata of every mark: [cell id, hover text].
    """
    figure = go.Figure()
    by_language = stacked(cells)
    column, across = ("log10_k", "log10_perplexity") if by_language else ("log10_perplexity", "benign")
    cells, unedited = _placed(cells), _placed(unedited)
    logs = cells[column].drop_nulls().to_list()
    low, high = (min(logs), max(logs)) if logs else (0.0, 1.0)
    span = max(high - low, 1e-6)
    for selector in palette.in_order(cells["selector"].unique().to_list()):
        look, rows = palette.style(selector), list(cells.filter(selector=selector).iter_rows(named=True))
        shares = [((low if row[column] is None else row[column]) - low) / span for row in rows]
        figure.add_scatter(
            x=[row[across] for row in rows], y=[row["malign"] for row in rows], mode="markers+text",
            name=look.title, customdata=[[row["id"], _hover(row)] for row in rows],
            text=["rescue" if row["rescue"] else "" for row in rows], textposition="top center",
            textfont={"size": figure_size.NOTE_PX}, cliponaxis=False,
            marker={
                "symbol": look.symbol, "color": [row[column] for row in rows], "coloraxis": "coloraxis",
                "size": [_SMALLEST_PX + (_LARGEST_PX - _SMALLEST_PX) * share for share in shares],
                "line": {
                    "width": [3 if row["point"] else 1 for row in rows],
                    "color": [look.colour if row["point"] else palette.REFERENCE for row in rows],
                },
                "opacity": [1.0 if row["point"] or row["id"] == chosen else 0.8 for row in rows],
            },
            selected={"marker": {"opacity": 1.0}}, unselected={"marker": {"opacity": 0.8}},
            hovertemplate="%{customdata[1]}<extra></extra>",
        )  # fmt: skip
    _intervals(figure, cells, chosen, across)
    _before(figure, unedited, across)
    if by_language:
        below = _perplexity_across(figure, cells, unedited)
        ticks = sorted(set(logs))
        titles = [formats.rate(10**tick) for tick in ticks]
    else:
        below = _benign_across(figure, cells, benign_limit)
        ticks = [low + span * step / (_TICKS - 1) for step in range(_TICKS)]
        titles = [formats.perplexity(tick * LN10) for tick in ticks]
    figure.update_layout(
        coloraxis={
            "colorscale": matrix.SEQUENTIAL, "cmin": low, "cmax": low + span,
            "colorbar": {
                "title": {
                    "text": f"{'k, share of rows removed' if by_language else 'perplexity'} (also the size)",
                    "side": "top",
                },
                "orientation": "h", "thickness": 10, "x": 0, "xanchor": "left", "y": -0.15, "yanchor": "top", "len": 1,
                "tickvals": ticks, "ticktext": titles,
            },
        }
    )  # fmt: skip
    figure.update_yaxes(**axes.titled("malign refusal: risk prompts refused", tickformat=".0%", range=[-0.03, 1.08]))
    finished(figure, heading, below, _HEIGHT, bottom=_BOTTOM)
    figure.update_layout(legend_y=-(_BOTTOM - 50) / (_HEIGHT - TOP - _BOTTOM))
    return figure


def _placed(cells: pl.DataFrame) -> pl.DataFrame:
    """With the logarithms that marks are placed and coloured by; null where there is none."""
    nll = pl.col("nll").cast(pl.Float64)
    return cells.with_columns(
        log10_perplexity=pl.when(nll.is_finite()).then(nll / LN10),
        log10_k=pl.when(pl.col("k") > 0).then(pl.col("k").log10()),
    )


def _benign_across(figure: go.Figure, cells: pl.DataFrame, benign_limit: float) -> str:
    """The horizontal axis of benign refusal with the box of the limit; returns how to read it."""
    measured = [value for column in ("benign_high", "benign") for value in cells[column].drop_nulls()]
    right = min(1.03, max([2 * benign_limit, *(value + 0.04 for value in measured)]))
    figure.add_shape(
        type="rect", x0=0, x1=benign_limit, y0=0, y1=1, fillcolor=palette.REFERENCE, opacity=0.12, layer="below",
        line=palette.DOTTED,
    )  # fmt: skip
    figure.add_annotation(
        x=0, y=1.08, xanchor="left", yanchor="top", text=f"feasible: benign ≤ {benign_limit:.0%}",
        showarrow=False, font={"color": palette.REFERENCE, "size": figure_size.NOTE_PX},
    )  # fmt: skip
    figure.update_xaxes(
        **axes.titled("benign refusal: harmless prompts refused", tickformat=".0%", range=[-0.02, right])
    )
    return "up is stronger, left spares harmless prompts"


def _perplexity_across(figure: go.Figure, cells: pl.DataFrame, unedited: pl.DataFrame) -> str:
    """The horizontal axis of perplexity; returns how to read it. What benign refusal is stands in the figure."""
    places = [*cells["log10_perplexity"].drop_nulls(), *unedited["log10_perplexity"].drop_nulls()]
    figure.update_xaxes(**axes.titled("perplexity", **perplexity_scale(places, share=0.1, least=0.003)))
    counts = cells["benign"].drop_nulls().value_counts().sort("count").row(-1, named=True)
    of = "all" if counts["count"] == cells.height else f"{counts['count']} of the"
    figure.add_annotation(
        x=0, xref="paper", xanchor="left", y=0.01, yanchor="bottom", showarrow=False,
        text=f"{of} {cells.height} edits refuse {counts['benign']:.1%} of harmless prompts",
        font={"color": palette.REFERENCE, "size": figure_size.NOTE_PX},
    )  # fmt: skip
    return "up is stronger, left keeps the language"


def _hover(row: Row) -> str:
    lines = [
        f"<b>{palette.title(row['selector'])}, {row['domain']}</b>, {strength(row)}",
        f"malign {percent(row['malign'], row['malign_low'], row['malign_high'])}",
        f"benign {percent(row['benign'], row['benign_low'], row['benign_high'])}",
        f"perplexity {formats.perplexity(row['nll'])}",
    ]
    if row["rows_removed"] is not None:
        lines.append(f"{row['rows_removed']:,} rows removed")
    if row["point"]:
        lines.append("operating point" + (", rescued under a relaxed benign limit" if row["rescue"] else ""))
    elif not row["feasible"]:
        lines.append("not feasible")
    return "<br>".join(lines)


def _intervals(figure: go.Figure, cells: pl.DataFrame, chosen: str, across: str) -> None:
    rows = [
        row
        for row in cells.iter_rows(named=True)
        if (row["point"] or row["id"] == chosen) and row["malign_low"] is not None
    ]
    bars = {
        f"error_{axis}": axes.intervals(
            [(row[kind], row[f"{kind}_low"], row[f"{kind}_high"]) for row in rows], width=3, colour=palette.REFERENCE
        )
        for axis, kind in (("x", "benign"), ("y", "malign")) if kind in ("malign", across)
    }  # fmt: skip
    figure.add_scatter(
        x=[row[across] for row in rows], y=[row["malign"] for row in rows], mode="markers", showlegend=False,
        hoverinfo="skip", marker={"size": 1, "color": palette.REFERENCE}, **bars,
    )  # fmt: skip
    here = [row for row in rows if row["id"] == chosen]
    if here:
        figure.add_annotation(
            x=here[0][across], y=here[0]["malign"], text="chosen", showarrow=True, arrowhead=2, ax=34, ay=34,
            arrowcolor=palette.REFERENCE, font={"color": palette.REFERENCE, "size": figure_size.NOTE_PX},
        )  # fmt: skip


def _before(figure: go.Figure, unedited: pl.DataFrame, across: str) -> None:
    rows = list(unedited.unique(["domain", "malign", "benign"], maintain_order=True).iter_rows(named=True))
    if not rows:
        return
    figure.add_scatter(
        x=[row[across] for row in rows], y=[row["malign"] for row in rows], mode="markers", name="unedited model",
        marker={"symbol": "asterisk-open", "size": 11, "color": palette.BEFORE, "line": {"width": 2}},
        customdata=[
            f"<b>unedited model, {row['domain']}</b><br>malign "
            f"{percent(row['malign'], row['malign_low'], row['malign_high'])}<br>benign "
            f"{percent(row['benign'], row['benign_low'], row['benign_high'])}<br>perplexity "
            f"{formats.perplexity(row['nll'])}"
            for row in rows
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
