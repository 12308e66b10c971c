"""Figures of the overview: stability against validity, and one rate over models. No streamlit here."""

from __future__ import annotations

import html
import math

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, figure_size, formats, headline, palette
from dashboard.charts.axes import decade_ticks
from dashboard.charts.formats import LN10
from dashboard.charts.lines import finished
from engine.stats.limits import Thresholds

_ROW_PX, _TOP_PX, _BOTTOM_PX = 46, 78, 150
_SHARE, _LEAST_DECADES, _BAND = 3.0, 2.0, 0.22  # of the first model's span; of the axis without the band


def stability_validity(table: pl.DataFrame) -> go.Figure:
    """One mark per selector (`headline.scatter`); the dotted lines are the verdicts' thresholds.

    A mark with a ring is not what its corner says: its verdict is another, or it does about as much harm as chance.
    """
    limits = Thresholds()
    figure = go.Figure()
    for row in table.iter_rows(named=True):
        look = palette.style(row["selector"])
        damage = "" if row["damage"] is None else f"<br>LeRF does {row['damage']:.1%} of random's damage"
        figure.add_scatter(
            x=[row["spearman"]], y=[row["log_gap"]], name=look.title, mode="markers", cliponaxis=False,
            marker={"color": look.colour, "symbol": look.symbol, "size": 14},
            customdata=[
                f"{_said(row)}<br>Spearman {row['spearman']:.4f} "
                f"({row['size']} against {row['reference_size']} windows)<br>"
                f"log gap {row['log_gap']:.3f} nats{damage}"
            ],
            hovertemplate=f"<b>{look.title}</b><br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
    deceptive = table.filter(pl.col("quadrant") != pl.col("corner"))
    if deceptive.height:
        figure.add_scatter(
            x=deceptive["spearman"].to_list(), y=deceptive["log_gap"].to_list(), mode="markers",
            name="not what its corner says: see the hover", hoverinfo="skip", cliponaxis=False,
            marker={"symbol": "circle-open", "size": 24, "color": palette.REFERENCE, "line": {"width": 2}},
        )  # fmt: skip
    left, right = _range([*table["spearman"], limits.spearman], 0.012, most=1.0)
    low, high = _range([*table["log_gap"], limits.log_gap, 0.0], 0.6)
    high += 0.12 * (high - low)  # the words in the upper corners stand above all marks
    axes.level(figure, f"limit {limits.log_gap:g} nats", y=limits.log_gap, at="top left")
    roomy = "right" if limits.spearman - left < (right - left) / 2 else "left"  # of the line, beside the corner's words
    axes.level(figure, f"limit {limits.spearman:g}", x=limits.spearman, at=f"bottom {roomy}")
    corners = (
        (left, high, "left", "top", headline.UNSTABLE_VALID),
        (right, high, "right", "top", headline.STABLE_VALID),
        (left, low, "left", "bottom", headline.UNSTABLE_INVALID),
        (right, low, "right", "bottom", headline.STABLE_INVALID),
    )
    for x, y, xanchor, yanchor, text in corners:
        figure.add_annotation(
            x=x, y=y, xanchor=xanchor, yanchor=yanchor, text=f"<b>{text}</b>", showarrow=False,
            font={"size": figure_size.NOTE_PX + 1, "color": palette.REFERENCE},
        )  # fmt: skip
    sizes = table.select("size", "reference_size").row(0)
    figure.update_xaxes(
        title={"text": f"nested stability: Spearman of scores, {sizes[0]} against {sizes[1]} windows", "standoff": 6},
        range=[left, right], zeroline=False,
    )  # fmt: skip
    figure.update_yaxes(
        title=f"validity: log gap at {formats.rate(headline.RATE)} (nats)", range=[low, high], zeroline=False
    )
    finished(figure, "Stable is not the same as valid", height=430, bottom=125, top=44)
    return figure.update_layout(title_y=0.97, legend_y=-0.24)


def snapshot(table: pl.DataFrame, below: str = "further left is better") -> go.Figure:
    """LeRF perplexity at one rate, a line per model and a mark per selector (`headline.snapshot`).

    The first model's marks keep a third of the axis: what would stretch it further stands in a band at the right end,
    in order, its value in the hover.
    """
    labels = table["label"].unique(maintain_order=True).to_list()
    figure = go.Figure()
    end = _end(table, labels[0])
    beyond = _beyond(table, end)
    finite = [nll / LN10 for column in ("nll", "unmasked_nll") for nll in table[column].drop_nulls() if _is(nll, end)]
    low, high = _range(finite, 0.15)
    high = end if beyond else high
    room = _BAND * (high - low) if beyond else 0.0
    slots = max(map(len, beyond.values()), default=0)
    for selector in palette.in_order(table["selector"].to_list()):
        look = palette.style(selector)
        rows = table.filter(pl.col("selector") == selector, pl.col("nll").is_finite())
        figure.add_scatter(
            x=[
                nll / LN10 if _is(nll, end) else high + room * (beyond[label].index(selector) + 1) / (slots + 1)
                for label, nll in rows.select("label", "nll").iter_rows()
            ],
            y=[html.escape(label) for label in rows["label"]], name=look.title, mode="markers",
            marker={"color": look.colour, "symbol": look.symbol, "size": 11},
            customdata=[_hover(row) for row in rows.iter_rows(named=True)],
            hovertemplate=f"<b>{look.title}</b>, %{{y}}<br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
    dense = table.unique("label", keep="first", maintain_order=True).filter(pl.col("unmasked_nll").is_not_null())
    figure.add_scatter(
        x=[min(nll / LN10, high) for nll in dense["unmasked_nll"]], y=[html.escape(label) for label in dense["label"]],
        name="unmasked model", mode="markers",
        marker={"symbol": "line-ns-open", "size": 18, "color": palette.REFERENCE, "line": {"width": 2}},
        customdata=[f"perplexity {formats.perplexity(nll)}" for nll in dense["unmasked_nll"]],
        hovertemplate="<b>unmasked model</b>, %{y}<br>%{customdata}<extra></extra>",
    )  # fmt: skip
    ticks = decade_ticks(low, high)
    if beyond:
        figure.add_shape(
            type="rect", x0=high, x1=high + room, yref="paper", y0=0, y1=1, fillcolor=palette.REFERENCE, opacity=0.13,
            layer="below", line={"width": 0},
        )  # fmt: skip
        figure.add_annotation(
            x=high + room / 2, yref="paper", y=1, yanchor="bottom", text=f"above {formats.perplexity(high * LN10)}",
            showarrow=False, font={"size": figure_size.NOTE_PX, "color": palette.REFERENCE},
        )  # fmt: skip
    figure.update_xaxes(
        title={"text": "perplexity", "standoff": 6}, range=[low, high + room], tickmode="array", tickvals=ticks,
        ticktext=[formats.power_tick(tick) for tick in ticks], tickangle=0, zeroline=False,
    )  # fmt: skip
    figure.update_yaxes(
        title=None, autorange="reversed", categoryorder="array",
        categoryarray=[html.escape(label) for label in labels], showgrid=True,
    )  # fmt: skip
    first = f"{formats.rate(headline.RATE)} removed, lowest scores first (LeRF)"
    plot = _ROW_PX * len(labels)
    finished(figure, first, html.escape(below), _TOP_PX + _BOTTOM_PX + plot, _BOTTOM_PX, top=_TOP_PX)
    return figure.update_layout(title_y=0.97, margin_r=14, legend_y=-54 / plot)


def _end(table: pl.DataFrame, label: str) -> float:
    """The largest log10 perplexity that the axis is drawn to: three times the span of the first model's marks."""
    own = table.filter(pl.col("label") == label)
    places = [
        nll / LN10 for column in ("nll", "unmasked_nll") for nll in own[column].drop_nulls() if math.isfinite(nll)
    ]
    everything = table.filter(pl.col("nll").is_finite())
    least = min([*(everything["nll"] / LN10), *(everything["unmasked_nll"].drop_nulls() / LN10)], default=0.0)
    if not places:
        return math.inf
    return max(max(places), least + max(_SHARE * (max(places) - min(places)), _LEAST_DECADES))


def _beyond(table: pl.DataFrame, end: float) -> dict[str, list[str]]:
    """The selectors of every model that lie beyond the axis, from the left to the right."""
    far = table.filter(pl.col("nll").is_finite(), pl.col("nll") / LN10 > end).sort("nll", maintain_order=True)
    return {str(label): part["selector"].to_list() for (label,), part in far.group_by("label", maintain_order=True)}


def _is(nll: float, end: float) -> bool:
    """Does it stand on the axis itself?"""
    return math.isfinite(nll) and nll / LN10 <= end


def _said(row: dict[str, object]) -> str:
    """The verdict, or what the numbers alone say."""
    if row["verdict"] is None:
        return f"{row['quadrant']}, by these numbers alone"
    return html.escape(f"verdict: {row['verdict']}")


def _hover(row: dict[str, object]) -> str:
    nll = row["nll"]
    assert isinstance(nll, float)
    printed = f" (printed {row['printed']})" if row["printed"] else ""
    return f"perplexity {formats.perplexity(nll)}{printed}<br>NLL {nll:.4f} nats per token"


def _range(values: list[float], margin: float, most: float = math.inf) -> tuple[float, float]:
    """The values' range with 8% and at least `margin` on either side; `most`: where the data end."""
    low, high = min(values), max(values)
    room = max(margin, 0.08 * (high - low))
    return low - room, min(high + room, most + margin / 2)
