"""All edits of one selector and domain: risk prompts refused against perplexity, and the best of what it costs."""

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, figure_size, formats, palette
from dashboard.charts.formats import LN10
from dashboard.charts.lines import finished, perplexity_scale
from dashboard.charts.refusal_values import Row, percent, strength

_MARK_PX, _RING_PX = 10, 18
_UNEDITED = "<b>unedited model</b>"
_HEIGHT, _BOTTOM = 480, 100  # pixels; below the plot: axis title, legend


def trade_off(cells: pl.DataFrame, unedited: pl.DataFrame, chosen: str, benign_limit: float, heading: str) -> go.Figure:
    """Risk prompts refused against perplexity, in the selector's colour: filled where few harmless prompts are refused.
    cells: rows of `refusal_values.cells` with rates, of one selector and domain; unedited: the model's own. The line
    joins the frontier: no filled mark to the left of it is as high. The operating point and the `chosen` cell have a
    ring and Wilson's intervals. customdata of every edit: [cell id, hover text]."""
    figure = go.Figure()
    cells, unedited = _placed(cells), _placed(unedited)
    look = palette.style(cells["selector"][0])
    best = frontier(cells)
    figure.add_scatter(
        x=best["log10_perplexity"].to_list(), y=best["malign"].to_list(), mode="lines", hoverinfo="skip",
        line={"color": look.colour, "width": 2, "shape": "hv"}, name="best at this perplexity or less",
    )  # fmt: skip
    for feasible, name in ((True, f"at most {benign_limit:.0%} of harmless prompts refused"), (False, "not feasible")):
        rows = list(cells.filter(feasible=feasible).iter_rows(named=True))
        if not rows:
            continue
        told = [row["point"] or row["id"] == chosen for row in rows]
        figure.add_scatter(
            x=[row["log10_perplexity"] for row in rows], y=[row["malign"] for row in rows], mode="markers+text",
            name=name, customdata=[[row["id"], _hover(row)] for row in rows],
            text=["rescue" if row["rescue"] else "operating point" if row["point"] else "" for row in rows],
            textposition="top center", textfont={"size": figure_size.NOTE_PX}, cliponaxis=False,
            marker={
                "symbol": look.symbol if feasible else f"{look.symbol}-open", "color": look.colour,
                "size": [_RING_PX if ring else _MARK_PX for ring in told],
                "line": {"width": [3 if ring else 1.5 for ring in told], "color": palette.REFERENCE if feasible else
                         look.colour},
            },
            selected={"marker": {"opacity": 1.0}}, unselected={"marker": {"opacity": 1.0}},
            hovertemplate="%{customdata[1]}<extra></extra>",
        )  # fmt: skip
    ringed = list(cells.filter((pl.col("id") == chosen) | pl.col("point")).iter_rows(named=True))
    bars = [(row["malign"], row["malign_low"], row["malign_high"]) for row in ringed]
    figure.add_scatter(
        x=[row["log10_perplexity"] for row in ringed], y=[bar[0] for bar in bars], mode="markers", showlegend=False,
        hoverinfo="skip", marker={"size": 1, "color": palette.REFERENCE},
        error_y=axes.intervals(bars, width=3, colour=palette.REFERENCE),
    )  # fmt: skip
    _before(figure, unedited)
    places = [*cells["log10_perplexity"].drop_nulls(), *unedited["log10_perplexity"].drop_nulls()]
    figure.update_xaxes(**axes.titled("perplexity", **perplexity_scale(places, share=0.1, least=0.003)))
    figure.update_yaxes(**axes.titled("risk prompts refused", tickformat=".0%", range=[-0.03, 1.08]))
    return finished(figure, heading, "up is stronger, left keeps the language", _HEIGHT, _BOTTOM)


def frontier(cells: pl.DataFrame) -> pl.DataFrame:
    """The feasible cells that no cheaper one equals: by perplexity, with more and more risk prompts refused."""
    known = cells.filter(pl.col("feasible"), pl.col("malign").is_not_null(), pl.col("nll").is_not_null())
    known = known.sort(["nll", "malign"], descending=[False, True])
    return known.filter(pl.col("malign") > pl.col("malign").cum_max().shift(1).fill_null(-1.0))


def _placed(cells: pl.DataFrame) -> pl.DataFrame:
    """With the logarithm that marks are placed by; null where there is none."""
    nll = pl.col("nll").cast(pl.Float64)
    return cells.with_columns(log10_perplexity=pl.when(nll.is_finite()).then(nll / LN10))


def _hover(row: Row) -> str:
    lines = [
        f"<b>{palette.title(row['selector'])}, {row['domain']}</b>, {strength(row)}" if row["k"] else _UNEDITED,
        f"risk prompts refused {percent(row['malign'], row['malign_low'], row['malign_high'])}",
        f"harmless ones {percent(row['benign'], row['benign_low'], row['benign_high'])}",
        f"perplexity {formats.perplexity(row['nll'])}",
    ]
    if row["rows_removed"]:
        lines.append(f"{row['rows_removed']:,} rows removed")
    if row["point"]:
        rescued = ", rescued under a relaxed limit of harmless prompts" if row["rescue"] else ""
        lines.append(f"operating point{rescued}")
    return "<br>".join(lines)


def _before(figure: go.Figure, unedited: pl.DataFrame) -> None:
    rows = list(unedited.unique(["malign", "nll"], maintain_order=True).iter_rows(named=True))
    if not rows:
        return
    figure.add_scatter(
        x=[row["log10_perplexity"] for row in rows], y=[row["malign"] for row in rows], mode="markers",
        name="unedited model",
        marker={"symbol": "asterisk-open", "size": 11, "color": palette.BEFORE, "line": {"width": 2}},
        customdata=[_hover(row) for row in rows], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
