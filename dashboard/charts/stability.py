"""Stability against validity: a ranking can be the same every time and still be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, formats, palette
from dashboard.charts.lines import finished
from engine.stats.limits import Thresholds


def quadrant(
    verdicts: pl.DataFrame, stable: str, stable_from: float, limits: Thresholds, draws: pl.DataFrame | None = None
) -> go.Figure:
    """One point per selector, right is stable, up is valid. Selectors without a stability are not drawn.

    stable: the column of the stability, `spearman` or `jaccard`, of draws `draw_spearman` or `draw_jaccard`, and its
    limit; draws: the table with its intervals. Upwards goes what decides most verdicts: which share of random rows'
    harm the lowest scores avoid; where nobody knows it (published tables), the log gap in nats."""
    figure = go.Figure()
    known = "damage" in verdicts.columns and verdicts["damage"].is_finite().any()
    column, limit = ("avoided", 1 - limits.invalid_damage) if known else ("log_gap", limits.log_gap)
    if known:
        verdicts = verdicts.with_columns(avoided=1 - pl.col("damage"))
    drawn = verdicts.filter(pl.col(stable).is_not_null(), pl.col(column).is_finite())
    ends = _intervals(draws, stable, limits.rate)
    above = _beside_each_other(drawn, stable, column)
    for row in palette.sorted_by_selector(drawn).iter_rows(named=True):
        look = palette.style(row["selector"])
        figure.add_scatter(
            x=[row[stable]], y=[row[column]], mode="markers+text", name=look.title, text=[look.title],
            textposition="top center" if above[row["selector"]] else "bottom center", showlegend=False,
            error_x=axes.intervals([(row[stable], *ends.get(row["selector"], (None, None)))], colour=look.colour),
            cliponaxis=False, marker={"color": look.colour, "symbol": look.symbol, "size": 13},
            customdata=[_hover(row)], hovertemplate=f"<b>{look.title}</b><br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
    of_drawn = [end for selector in drawn["selector"] for end in ends.get(selector, ())]
    left, right = _widened([*drawn[stable], *of_drawn, stable_from])
    low, high = _widened([*drawn[column], limit])
    figure.add_shape(
        type="rect", x0=stable_from, x1=right, y0=low, y1=limit, opacity=0.13,
        fillcolor=palette.REFERENCE, line={"width": 0}, layer="below",
    )  # fmt: skip
    axes.level(figure, f"limit {limit:.0%}" if known else f"limit {limit:g} nats", y=limit, at="top left")
    figure.add_annotation(
        x=right, y=low, xanchor="right", yanchor="bottom", text="stable but invalid", showarrow=False,
        font={"color": palette.REFERENCE},
    )  # fmt: skip
    figure.add_annotation(
        x=right, y=high, xanchor="right", yanchor="top", text="stable and valid",
        showarrow=False, font={"color": palette.REFERENCE},
    )  # fmt: skip
    axes.level(figure, f"limit {stable_from:g}", x=stable_from, at="bottom left")
    title = (
        f"harm avoided compared with random rows ({limits.rate:.0%} removed)" if known else "log gap (nats per token)"
    )
    figure.update_yaxes(title={"text": title}, range=[low, high], zeroline=False)
    if known:
        figure.update_yaxes(tickformat=".0%")
    name = "Spearman" if "spearman" in stable else "Jaccard"
    said = "between disjoint draws" if stable.startswith("draw_") else "less text against all (nested)"
    figure.update_xaxes(title={"text": f"{name}, {said}"}, range=[left, right], zeroline=False)
    below = "right is stable, up is valid" + ("; bars across: 95% intervals over draws" if of_drawn else "")
    if known:
        below += "; 0%: as much harm as random rows, or more"
    return finished(figure, "Stability against validity", below, 470)


def _beside_each_other(drawn: pl.DataFrame, stable: str, column: str) -> dict[str, bool]:
    """Selector -> does its name stand above its mark? Of two that are near each other the second's is below."""
    sides: dict[str, bool] = {}
    before: tuple[str, float, float] | None = None
    marks = list(drawn.sort(stable).select("selector", stable, column).iter_rows())
    wide, high = (
        max(ends, default=0.0) - min(ends, default=0.0) for ends in ([mark[i] for mark in marks] for i in (1, 2))
    )
    for name, x, y in marks:
        near = before is not None and abs(x - before[1]) < 0.15 * wide and abs(y - before[2]) < 0.1 * high
        sides[name] = not (near and before is not None and sides[before[0]])
        before = (name, x, y)
    return sides


def _intervals(draws: pl.DataFrame | None, stable: str, rate: float) -> dict[str, tuple[float, float]]:
    """Selector -> both ends of the interval of its likeness between draws at a rate, where the table has them."""
    low, high = (f"{stable.removeprefix('draw_')}_{end}" for end in ("low", "high"))
    if draws is None or low not in draws.columns or not stable.startswith("draw_"):
        return {}
    of_rate = draws.filter((pl.col("rate") - rate).abs() < 1e-9).drop_nulls([low, high])
    return {name: (least, most) for name, least, most in of_rate.select("selector", low, high).iter_rows()}


_HOVERED = (
    ("draw_spearman", "Spearman between draws"), ("draw_jaccard", "Jaccard between draws"),
    ("spearman", "Spearman, nested"), ("jaccard", "Jaccard, nested"), ("log_gap", "log gap (nats)"),
    ("damage", "harm of the lowest scores, share of random rows'"),
)  # fmt: skip


def between_draws(draws: pl.DataFrame, limit: float, *, heading: str) -> go.Figure:
    """A mark per selector: Jaccard of masks between disjoint draws, the mean of all pairs with their range.
    draws: one rate of the table `draws`. Selectors whose overlap is not defined are not drawn."""

    def dot(row: dict[str, Any]) -> tuple[float, str, float, float]:
        value, least, most = row["jaccard"], row["jaccard_min"], row["jaccard_max"]
        rho = "not defined" if row["spearman"] is None else f"{row['spearman']:.4f}"
        return value, f"Jaccard {value:.4f} ({least:.4f} to {most:.4f})<br>Spearman {rho}", least, most

    known = draws.filter(pl.col("jaccard").is_not_null())
    figure, titles = dots.by_selector(known, dot)
    axes.level(figure, f"limit {limit:g}", x=limit, at="top left")
    axis = {"range": [max(0.0, min([limit, *known["jaccard_min"]]) - 0.05), 1.01]}
    below = "further right: another text gives the same mask"
    return dots.finished(figure, titles, "Jaccard between disjoint draws", heading, below, axis=axis)


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
