"""Figures of the overview: stability against validity, and one rate over models. No streamlit here."""

from __future__ import annotations

import html
import math

import plotly.graph_objects as go
import polars as pl

from dashboard import figure_size, formats, headline, palette
from dashboard.formats import LN10
from dashboard.ticks import decade_ticks
from engine.analysis.verdict import Thresholds

_ROW_PX, _TOP_PX, _BOTTOM_PX = 46, 78, 150


def stability_validity(table: pl.DataFrame) -> go.Figure:
    """One mark per selector (`headline.scatter`); the dotted lines are the verdicts' thresholds.

    A mark with a ring lies above the line of the log gap and still does about as much harm as chance.
    """
    limits = Thresholds()
    figure = go.Figure()
    for row in table.iter_rows(named=True):
        look = palette.style(row["selector"])
        damage = "" if row["damage"] is None else f"<br>LeRF does {row['damage']:.1%} of random's damage"
        figure.add_trace(
            go.Scatter(
                x=[row["spearman"]], y=[row["log_gap"]], name=look.title, mode="markers", cliponaxis=False,
                marker={"color": look.colour, "symbol": look.symbol, "size": 14},
                customdata=[
                    f"{row['quadrant']}<br>Spearman {row['spearman']:.4f} "
                    f"({row['size']} against {row['reference_size']} windows)<br>"
                    f"log gap {row['log_gap']:.3f} nats{damage}"
                ],
                hovertemplate=f"<b>{look.title}</b><br>%{{customdata}}<extra></extra>",
            )
        )  # fmt: skip
    deceptive = table.filter(
        pl.col("log_gap") >= limits.log_gap,
        pl.col("quadrant").is_in([headline.STABLE_INVALID, headline.UNSTABLE_INVALID]),
    )
    if deceptive.height:
        figure.add_trace(
            go.Scatter(
                x=deceptive["spearman"].to_list(), y=deceptive["log_gap"].to_list(), mode="markers",
                name="as harmful as chance under LeRF: invalid", hoverinfo="skip", cliponaxis=False,
                marker={"symbol": "circle-open", "size": 24, "color": palette.REFERENCE, "line": {"width": 2}},
            )
        )  # fmt: skip
    left, right = _range([*table["spearman"], limits.spearman], 0.012, most=1.0)
    low, high = _range([*table["log_gap"], limits.log_gap, 0.0], 0.6)
    high += 0.12 * (high - low)  # the words in the upper corners stand above all marks
    line = {"color": palette.REFERENCE, "width": 1, "dash": "dot"}
    figure.add_hline(y=limits.log_gap, line=line)
    figure.add_vline(x=limits.spearman, line=line)
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
        title={"text": f"stability: Spearman of scores, {sizes[0]} against {sizes[1]} windows", "standoff": 6},
        range=[left, right], zeroline=False,
    )  # fmt: skip
    figure.update_yaxes(
        title=f"validity: log gap at {formats.rate(headline.RATE)} (nats)", range=[low, high], zeroline=False
    )
    figure.update_layout(
        title={"text": "Stable is not the same as valid", "x": 0, "y": 0.97, "yanchor": "top"},
        height=430, hovermode="closest", dragmode=False, margin={"l": 10, "r": 10, "t": 44, "b": 125},
        legend={"orientation": "h", "yanchor": "top", "y": -0.24, "xanchor": "left", "x": 0},
    )  # fmt: skip
    return figure


def snapshot(table: pl.DataFrame, below: str = "further left is better") -> go.Figure:
    """LeRF perplexity at one rate, a line per model and a mark per selector (`headline.snapshot`)."""
    labels = table["label"].unique(maintain_order=True).to_list()
    figure = go.Figure()
    for selector in palette.in_order(table["selector"].to_list()):
        look = palette.style(selector)
        rows = table.filter(pl.col("selector") == selector, pl.col("nll").is_finite())
        figure.add_trace(
            go.Scatter(
                x=[nll / LN10 for nll in rows["nll"]], y=[html.escape(label) for label in rows["label"]],
                name=look.title, mode="markers", marker={"color": look.colour, "symbol": look.symbol, "size": 11},
                customdata=[_hover(row) for row in rows.iter_rows(named=True)],
                hovertemplate=f"<b>{look.title}</b>, %{{y}}<br>%{{customdata}}<extra></extra>",
            )
        )  # fmt: skip
    dense = table.unique("label", keep="first", maintain_order=True).filter(
        pl.col("unmasked_nll").is_not_null()
    )
    figure.add_trace(
        go.Scatter(
            x=[nll / LN10 for nll in dense["unmasked_nll"]], y=[html.escape(label) for label in dense["label"]],
            name="unmasked model", mode="markers",
            marker={"symbol": "line-ns-open", "size": 18, "color": palette.REFERENCE, "line": {"width": 2}},
            customdata=[f"perplexity {formats.perplexity(nll)}" for nll in dense["unmasked_nll"]],
            hovertemplate="<b>unmasked model</b>, %{y}<br>%{customdata}<extra></extra>",
        )
    )  # fmt: skip
    heights = [x for trace in figure.data for x in trace.x]
    low, high = _range(heights, 0.15)
    ticks = decade_ticks(low, high)
    figure.update_xaxes(
        title={"text": "perplexity", "standoff": 6}, range=[low, high], tickmode="array", tickvals=ticks,
        ticktext=[formats.power_tick(tick) for tick in ticks], tickangle=0, zeroline=False,
    )  # fmt: skip
    figure.update_yaxes(
        title=None, autorange="reversed", categoryorder="array",
        categoryarray=[html.escape(label) for label in labels], showgrid=True,
    )  # fmt: skip
    first = f"{formats.rate(headline.RATE)} removed, lowest scores first (LeRF)"
    figure.update_layout(
        title={
            "text": f"{first}<br><sub>{html.escape(below)}</sub>",
            "x": 0, "y": 0.97, "yanchor": "top",
        },
        height=_TOP_PX + _BOTTOM_PX + _ROW_PX * len(labels), hovermode="closest", dragmode=False,
        margin={"l": 10, "r": 14, "t": _TOP_PX, "b": _BOTTOM_PX},
        legend={
            "orientation": "h", "yanchor": "top", "xanchor": "left", "x": 0,
            "y": -54 / (_ROW_PX * len(labels)),
        },
    )  # fmt: skip
    return figure


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
