"""Curves of perplexity over removed rows, and what stands beside them. Themes are applied by whoever shows a figure."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, figure_size, formats, lines, palette
from dashboard.charts.formats import LN10

HEIGHT, TOP, BOTTOM = 480, 70, 130  # pixels; below the plot: ticks, axis title, up to four lines of legend
_BAND, _ZONE = 0.09, 0.28  # of the axis: the band above it, and the zone in which heights still have an order
_TITLE_Y = 0.95
_RATES_AXIS = axes.titled("rows removed", tickformat=".0%", tick0=0, nticks=10, tickangle=0)
_STAYS = {"marker": {"opacity": 1.0}}  # what was not clicked, beside what was
ORDER_HEADINGS = {
    "lerf": ("LeRF: lowest scores go first", "a good selector stays low"),
    "morf": ("MoRF: highest scores go first", "a good selector shoots up"),
}


def curves(
    drawn: pl.DataFrame,
    order: str,
    *,
    baseline: float | None,
    relative: bool = False,
    overlay: pl.DataFrame | None = None,
    overlay_baseline: float | None = None,
    overlay_name: str = "",
    saturated: float | None = None,
) -> go.Figure:
    """Perplexity against the share of removed rows, on a linear axis of log10 that is labelled 10^n.

    drawn, overlay: `series.points`. relative: divided by the unmasked model's perplexity (`baseline`,
    nats); curves whose own is not known are left out then. Values that are not finite cannot be drawn; they
    stand as arrows at the upper edge. Cells at a numerical ceiling do not stretch the axis: those beyond all others
    stand in a band above it. saturated: NLL above which the model is destroyed: the axis ends there, and what is above
    stands in order in a zone over it.
    """
    overlay_name = html.escape(overlay_name)  # plotly reads tags in text
    heights: list[float] = []
    ceilings: list[float] = []

    def measured(rows: pl.DataFrame, base: float) -> None:
        for nll, plateau in zip(rows["nll"], rows["plateau"], strict=True):
            if nll is not None and math.isfinite(nll):
                beyond = plateau or (saturated is not None and nll > saturated)
                (ceilings if beyond else heights).append((nll - base) / LN10)

    traces: list[dict[str, Any]] = []
    layers: list[tuple[pl.DataFrame, float, str | None]] = []  # of this order; what is laid over has a name
    shift = subtracted(baseline, relative)
    if shift is not None:
        layers.append((drawn.filter(order=order), shift, None))
    other_shift = subtracted(overlay_baseline, relative)
    if overlay is not None and other_shift is not None:
        layers.append((overlay.filter(order=order), other_shift, overlay_name))
    for part, base, over in layers:
        measured(part, base)
        by_selector = part.partition_by("selector", as_dict=True)
        for selector in palette.in_order([selector for (selector,) in by_selector]):
            traces.append(curve(by_selector[selector,], selector, base, over))
    if overlay is not None:
        traces.append(_overlay_key(overlay_name))
    traces += _plateaus([(part, base) for part, base, _ in layers])
    looks = lines.layout(*ORDER_HEADINGS[order], HEIGHT, BOTTOM, top=TOP)
    looks["title"]["y"] = _TITLE_Y
    if baseline is not None and shift is not None:
        heights.append((baseline - shift) / LN10)
        looks |= axes.level_layout("unmasked model", heights[-1], figure_size.NOTE_PX)
    limit = None if saturated is None or shift is None else (saturated - shift) / LN10
    if limit is not None and max(ceilings, default=limit) > limit:
        heights.append(limit)
    scale = _perplexity_scale(heights or ceilings, relative)
    if limit is not None and heights and max(ceilings, default=limit) > limit:
        scale["range"] = [scale["range"][0], limit]
    # At once: plotly looks at the whole figure again for each part that is added to it.
    figure = go.Figure(traces, {**looks, "xaxis": _RATES_AXIS, "yaxis": scale})
    top = float(scale["range"][1])
    if max(ceilings, default=top) > top:
        text = (
            "at or above the ceiling"
            if limit is None
            else f"destroyed: perplexity above {formats.perplexity(saturated or 0)}"
        )
        top = ceiling_band(figure, text, spread=limit is not None)
    _not_finite(figure, [part for part, _, _ in layers], top)
    return figure


def subtracted(baseline: float | None, relative: bool) -> float | None:
    """What to take from every NLL of a curve; None where nothing can be drawn, since `baseline` is not known."""
    return baseline if relative else 0.0


def curve(rows: pl.DataFrame, selector: str, base: float, over: str | None = None) -> dict[str, Any]:
    """A selector's perplexities as a trace. base: taken from every NLL; over: as in `_line`."""
    heights = [(nll - base) / LN10 if math.isfinite(nll) else None for nll in rows["nll"].fill_null(math.nan)]
    return _line(
        selector, rows, heights, [_hover(row) for row in rows.iter_rows(named=True)], over,
        error_y=axes.errors([None if error is None else error / LN10 for error in rows["error"]]),
        selected={"marker": {"size": 12}}, unselected=_STAYS,
    )  # fmt: skip


def _line(
    selector: str, rows: pl.DataFrame, y: Sequence[float | None], hover: Sequence[str], over: str | None, **more: Any
) -> dict[str, Any]:
    """A selector's line over the rates of `rows`, as plotly takes it. over: the model or run that it is laid over the
    others from, dotted and open; None for the others."""
    look = palette.style(selector)
    label = look.title if over is None else f"{look.title} ({over})"
    dash, symbol = (look.dash, look.symbol) if over is None else (palette.OVERLAY_DASH, f"{look.symbol}-open")
    return {
        "type": "scatter", "x": rows["rate"].to_list(), "y": y, "name": label, "mode": "lines+markers",
        "connectgaps": False, "legendgroup": selector, "showlegend": over is None,
        "opacity": 1.0 if over is None else 0.75,
        "line": {"color": look.colour, "width": 2 if over is None else 1.5, "dash": dash},
        "marker": {"color": look.colour, "size": 7, "symbol": symbol},
        "customdata": hover, "hovertemplate": f"<b>{label}</b><br>%{{customdata}}<extra></extra>", **more,
    }  # fmt: skip


def _overlay_key(name: str) -> dict[str, Any]:
    """One legend entry for everything that is laid over: it has the selectors' colours."""
    return {
        "type": "scatter", "x": [None], "y": [None], "name": name, "mode": "lines+markers", "hoverinfo": "skip",
        "line": {"color": palette.REFERENCE, "width": 1.5, "dash": palette.OVERLAY_DASH},
        "marker": {"color": palette.REFERENCE, "size": 7, "symbol": "circle-open"},
    }  # fmt: skip


def _hover(row: dict[str, Any]) -> str:
    said = [f"removed {formats.rate(row['rate'])}"]
    if row["rows_removed"] is not None:
        said[0] += f" = {row['rows_removed']:,} rows"
    published = f" (printed {row['printed']})" if row["printed"] else ""
    said.append(f"perplexity {formats.perplexity(row['nll'])}{published}")
    error = f" ± {row['error']:.4f}" if row["error"] is not None else ""
    said.append(f"NLL {row['nll']:.4f}{error} nats per token")
    if row["seeds"] > 1:
        said.append(f"mean and spread of {row['seeds']} seeds")
    if row["tokens"]:
        said.append(f"{row['tokens']:,} tokens")
    if row["plateau"]:
        said.append("at the table's numerical ceiling")
    return "<br>".join(said)


def _plateaus(layers: Sequence[tuple[pl.DataFrame, float]]) -> list[dict[str, Any]]:
    """Rings around published cells that stand at a numerical ceiling."""
    x: list[float] = []
    y: list[float] = []
    for frame, base in layers:
        at_ceiling = frame.filter(pl.col("plateau") & pl.col("nll").is_finite())
        x += at_ceiling["rate"].to_list()
        y += [(nll - base) / LN10 for nll in at_ceiling["nll"]]
    if not x:
        return []
    ring = {"symbol": "circle-open", "size": 14, "color": palette.REFERENCE, "line": {"width": 1.5}}
    named = {"type": "scatter", "mode": "markers", "name": "at numerical ceiling", "hoverinfo": "skip"}
    return [{**named, "x": x, "y": y, "marker": ring, "unselected": _STAYS}]


def _not_finite(figure: go.Figure, frames: Sequence[pl.DataFrame], top: float) -> None:
    for frame in frames:
        for row in frame.filter(~pl.col("nll").is_finite() | pl.col("nll").is_null()).iter_rows(named=True):
            look = palette.style(row["selector"])
            figure.add_scatter(
                x=[row["rate"]], y=[top], mode="markers", showlegend=False, cliponaxis=False,
                marker={"symbol": "arrow-up", "size": 13, "color": look.colour},
                hovertemplate=f"<b>{look.title}</b>, {formats.rate(row['rate'])}: not finite<extra></extra>",
            )  # fmt: skip


def perplexity_axis(figure: go.Figure, heights: Sequence[float], relative: bool) -> float:
    """Sets range and 10^n ticks of the y axis; returns the upper end of the range (in log10)."""
    scale = _perplexity_scale(heights, relative)
    figure.update_yaxes(scale)
    return float(scale["range"][1])


def _perplexity_scale(heights: Sequence[float], relative: bool) -> dict[str, Any]:
    scale = lines.perplexity_scale(heights)
    if relative:
        scale["ticktext"] = [f"×{text}" for text in scale["ticktext"]]
    return {"title": {"text": "perplexity ÷ unmasked" if relative else "perplexity"}, **scale}


def ceiling_band(figure: go.Figure, text: str = "at or above the ceiling", *, spread: bool = False) -> float:
    """Puts what lies above the y axis into a band over it, in place; returns the upper end of the new range.

    spread: in order of height, without error bars; else all in its middle.
    """
    low, high = figure.layout.yaxis.range
    above = [value for trace in figure.data for value in trace.y or () if value is not None and value > high]
    room = (_ZONE if spread else _BAND) * (high - low)
    furthest = max(above, default=high)

    def put(value: float | None) -> float | None:
        if value is None or value <= high:
            return value
        return high + room * ((0.12 + 0.76 * (value - high) / (furthest - high)) if spread else 0.5)

    for trace in figure.data:
        if trace.y is not None:
            if spread and trace.error_y.array is not None:
                bars = zip(trace.y, trace.error_y.array, strict=True)
                trace.error_y.array = [0.0 if value is None or value > high else bar for value, bar in bars]
            trace.y = [put(value) for value in trace.y]
    figure.add_shape(
        type="rect", xref="paper", x0=0, x1=1, y0=high, y1=high + room, fillcolor=palette.REFERENCE, opacity=0.13,
        layer="below", line={"width": 0},
    )  # fmt: skip
    figure.add_annotation(
        text=text, xref="paper", x=0, xanchor="left", y=high + room * (0.9 if spread else 0.5), showarrow=False,
        font={"color": palette.REFERENCE, "size": figure_size.NOTE_PX},
    )  # fmt: skip
    figure.update_yaxes(range=[low, high + room])
    return float(high + room)


def gap(gap_rows: pl.DataFrame, overlay: pl.DataFrame | None = None, overlay_name: str = "") -> go.Figure:
    """Log gap, NLL_MoRF - NLL_LeRF in nats, against the share of removed rows (`series.gaps`).

    Where one of the two NLLs is at a numerical ceiling, the gap does not stretch the axis, as in `curves`. overlay: the
    gaps of another model or run.
    """
    figure = go.Figure()
    overlay, overlay_name = gap_rows.clear() if overlay is None else overlay, html.escape(overlay_name)
    for frame, over in ((gap_rows, None), (overlay, overlay_name)):
        for selector in palette.in_order(frame["selector"].unique().to_list()):
            rows = frame.filter(pl.col("selector") == selector)
            figure.add_trace(_line(selector, rows, _finite(rows["log_gap"]), _gap_hover(rows), over))
    if overlay.height:
        figure.add_trace(_overlay_key(overlay_name))
    figure.add_hline(y=0, line=palette.DOTTED)
    figure.update_yaxes(title="log gap (nats per token)", zeroline=False)
    drawn = pl.concat([gap_rows, overlay]).filter(pl.col("log_gap").is_finite())
    apart = [0.0, *drawn.filter(~pl.col("at_ceiling"))["log_gap"]]
    room = max(0.06 * (max(apart) - min(apart)), 0.03)
    if max(drawn["log_gap"], default=0.0) > max(apart) + room:
        figure.update_yaxes(range=[min(apart) - room, max(apart) + room])
        ceiling_band(figure)
    figure.update_xaxes(_RATES_AXIS)
    below = "large is good; below 0 the ranking is inverted"
    return lines.finished(figure, "Gap: NLL(MoRF) − NLL(LeRF)", below, HEIGHT, BOTTOM, top=TOP).update_layout(
        title_y=_TITLE_Y
    )


def _finite(values: pl.Series) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def _gap_hover(rows: pl.DataFrame) -> list[str]:
    return [
        f"removed {formats.rate(rate)}<br>log gap {log_gap:.3f} nats<br>PPL MoRF − LeRF {text}"
        for rate, log_gap, text in rows.select("rate", "log_gap", "gap").iter_rows()
    ]
