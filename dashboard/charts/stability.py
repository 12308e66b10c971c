"""Stability against validity: a ranking can be the same every time and still be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, formats, palette
from dashboard.charts.formats import LN10
from dashboard.charts.lines import finished, perplexity_scale


@dataclass(frozen=True)
class Quadrants:
    """What parts the figure. stability: `spearman` or `jaccard`, of draws `draw_spearman` or `draw_jaccard`; validity:
    `log_gap` or `lerf_nll` (in nats).
    """

    stability: str
    validity: str
    stable_from: float
    valid_limit: float | None  # least log gap, or the greatest NLL; None where it is not known

    @property
    def by_gap(self) -> bool:
        return self.validity == "log_gap"


def quadrant(verdicts: pl.DataFrame, parts: Quadrants) -> go.Figure:
    """One point per selector, right is stable, up is valid. Selectors without a stability are not drawn."""
    figure, unit = go.Figure(), 1.0 if parts.by_gap else LN10
    drawn = verdicts.filter(pl.col(parts.stability).is_not_null(), pl.col(parts.validity).is_finite())
    by_name = {row["selector"]: row for row in drawn.iter_rows(named=True)}
    for row in (by_name[name] for name in palette.in_order(list(by_name))):
        look = palette.style(row["selector"])
        figure.add_scatter(
            x=[row[parts.stability]], y=[row[parts.validity] / unit], mode="markers", name=look.title,
            cliponaxis=False, marker={"color": look.colour, "symbol": look.symbol, "size": 13},
            customdata=[_hover(row)], hovertemplate=f"<b>{look.title}</b><br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
    limit = None if parts.valid_limit is None else parts.valid_limit / unit
    heights = [value / unit for value in drawn[parts.validity]] + ([] if limit is None else [limit])
    left, right = _widened([*drawn[parts.stability], parts.stable_from])
    low, high = _widened(heights or [0.0, 1.0])
    bad = low if parts.by_gap else high
    if limit is not None:
        figure.add_shape(
            type="rect", x0=parts.stable_from, x1=right, y0=bad, y1=limit, fillcolor=palette.REFERENCE,
            opacity=0.13, line={"width": 0}, layer="below",
        )  # fmt: skip
        said = f"{limit:g} nats" if parts.by_gap else formats.perplexity(limit * LN10)
        axes.level(figure, f"limit {said}", y=limit, at="top left")
    figure.add_annotation(
        x=right, y=bad, xanchor="right", yanchor="bottom", text="stable, but invalid", showarrow=False,
        font={"color": palette.REFERENCE},
    )  # fmt: skip
    axes.level(figure, f"limit {parts.stable_from:g}", x=parts.stable_from, at="top left")
    if parts.by_gap:
        figure.update_yaxes(title={"text": "log gap (nats per token)"}, range=[low, high], zeroline=False)
    else:  # low perplexity is valid: the axis runs backwards, so that up is valid here too
        ticks = perplexity_scale(heights)
        figure.update_yaxes(title={"text": "LeRF perplexity, falling"}, **{**ticks, "range": [high, low]})
    name = "Spearman" if "spearman" in parts.stability else "Jaccard"
    said = "between disjoint draws" if parts.stability.startswith("draw_") else "less text against all (nested)"
    figure.update_xaxes(title={"text": f"{name}, {said}"}, range=[left, right], zeroline=False)
    return finished(figure, "Stability against validity", "right is stable, up is valid", 470)


_HOVERED = (
    ("draw_spearman", "Spearman between draws"), ("draw_jaccard", "Jaccard between draws"),
    ("spearman", "Spearman, nested"), ("jaccard", "Jaccard, nested"), ("log_gap", "log gap (nats)"),
)  # fmt: skip


def between_draws(draws: pl.DataFrame, limit: float, *, heading: str) -> go.Figure:
    """A mark per selector: Jaccard of masks between disjoint draws, the mean of all pairs with their range.

    draws: one rate of the table `draws`. Selectors whose overlap is not defined are not drawn.
    """
    figure = go.Figure()
    by_name = {row["selector"]: row for row in draws.filter(pl.col("jaccard").is_not_null()).iter_rows(named=True)}
    names = palette.in_order(list(by_name))
    for place, name in enumerate(names):
        row, look = by_name[name], palette.style(name)
        rho = "not defined" if row["spearman"] is None else f"{row['spearman']:.4f}"
        figure.add_scatter(
            x=[row["jaccard"]], y=[place], name=look.title, mode="markers", showlegend=False, cliponaxis=False,
            marker={"color": look.colour, "symbol": look.symbol, "size": 13},
            error_x=axes.intervals([(row["jaccard"], row["jaccard_min"], row["jaccard_max"])]),
            customdata=[
                f"Jaccard {row['jaccard']:.4f} ({row['jaccard_min']:.4f} to {row['jaccard_max']:.4f})<br>Spearman {rho}"
            ],
            hovertemplate=f"<b>{look.title}</b><br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
    axes.level(figure, f"limit {limit:g}", x=limit, at="top left")
    least = min([limit, *(row["jaccard_min"] for row in by_name.values())])
    figure.update_xaxes(title={"text": "Jaccard between disjoint draws"}, range=[max(0.0, least - 0.05), 1.01])
    figure.update_yaxes(**axes.places([palette.title(name) for name in names]), automargin=True)
    return finished(figure, heading, "further right: another text gives the same mask", 170 + 34 * len(names))


def _hover(row: dict[str, object]) -> str:
    numbers = [f"{name} {row[column]:.4f}" for column, name in _HOVERED if row.get(column) is not None]
    nll = row["lerf_nll"]
    lines = [*numbers, f"LeRF perplexity {formats.perplexity(nll if isinstance(nll, float) else None)}"]
    if row["validity"]:
        lines.append(f"validity: {row['validity']}; stability: {row['stability']}")
    return "<br>".join(lines)


def _widened(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = max(0.15 * (high - low), 0.02)
    return low - margin, high + margin
