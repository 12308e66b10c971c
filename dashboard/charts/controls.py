"""The consensus controls beside references of the same size, and where Consensus-2 takes its rows from."""

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, formats, palette
from dashboard.charts.formats import LN10
from dashboard.charts.lines import finished, perplexity_scale

CONTROL_TITLES = {
    "lrp_layer_matched": "Random, LRP's layers",
    "ig_layer_matched": "Random, IG's layers",
    "rank_randomised": "Consensus-2, IG shuffled",
    "intersection": "Rows of both",
    "veto_lrp": "LRP without IG's",
    "veto_ig": "IG without LRP's",
}
_CONTROL_ORDER = ("consensus2", "lrp", "ig", *CONTROL_TITLES, "random")
_CONTROL_COLOUR = "#3F7FBF"  # the controls' own mark; their references have their selectors' looks


def control_title(control: str) -> str:
    """A control's name for people."""
    return CONTROL_TITLES.get(control, palette.title(control))


def in_control_order(controls: Sequence[str]) -> list[str]:
    """consensus2 and its parents, the controls, random last."""
    known = {name: place for place, name in enumerate(_CONTROL_ORDER)}
    return sorted(set(controls), key=lambda name: (known.get(name, len(known)), name))


def dumbbells(controls: pl.DataFrame) -> go.Figure:
    """Every control with the references that remove as many rows, on one perplexity axis.

    controls: one order and rate of `controls.parquet`. Seeds: the mark is their mean NLL, the thin line their
    range. A reference of the same size is, for a control that removes the rate's rows, consensus2 at the rate.
    What has no finite mean has no mark."""
    own = controls.filter(pl.col("size_matched_to").is_null())
    names = in_control_order(own["control"].to_list())
    figure, heights = go.Figure(), []
    legend: set[str] = set()
    for place, control in enumerate(names):
        part = own.filter(pl.col("control") == control)
        beside = references(controls, control)
        marks = [(control, part, True), *((name, frame, False) for name, frame in beside)]
        marks = [mark for mark in marks if math.isfinite(_mean(mark[1]))]
        ends = [_mean(frame) for _, frame, _ in marks]
        heights += ends
        if len(ends) > 1:
            axes.joined(figure, [min(ends), max(ends)], place)
        for name, frame, is_control in marks:
            low, high = _reach(frame)
            heights += [low, high]
            figure.add_trace(_mark(name, frame, place, is_control, legend, control))
    figure.update_xaxes(title={"text": "perplexity", "standoff": 5}, **perplexity_scale(heights))
    figure.update_yaxes(**axes.places([_with_rows(own, name) for name in names]), automargin=True)
    return finished(figure, "Each control and references with as many rows", height=190 + 44 * len(names), bottom=120)


def references(controls: pl.DataFrame, control: str) -> list[tuple[str, pl.DataFrame]]:
    """What a control is compared with: frames of one mask per seed, by the name of the reference."""
    matched = controls.filter(pl.col("size_matched_to") == control)
    if matched.height:
        return [
            (name, matched.filter(pl.col("control") == name)) for name in in_control_order(matched["control"].to_list())
        ]
    own = controls.filter(pl.col("size_matched_to").is_null())
    full, part = own.filter(pl.col("control") == "consensus2"), own.filter(pl.col("control") == control)
    if control == "consensus2" or full.is_empty():
        return []
    same = full["rows_removed"][0] is not None and full["rows_removed"][0] == part["rows_removed"][0]
    return [("consensus2", full)] if same else []


def _mean(frame: pl.DataFrame) -> float:
    mean = frame["nll"].mean()
    return float(mean) / LN10 if isinstance(mean, float) else math.nan


def _reach(frame: pl.DataFrame) -> tuple[float, float]:
    return float(frame["nll"].min()) / LN10, float(frame["nll"].max()) / LN10  # type: ignore[arg-type]


def _with_rows(own: pl.DataFrame, control: str) -> str:
    rows = own.filter(pl.col("control") == control)["rows_removed"][0]
    return control_title(control) + (f"<br><sub>{rows:,} rows</sub>" if rows is not None else "")


def _mark(name: str, frame: pl.DataFrame, place: int, is_control: bool, legend: set[str], control: str) -> go.Scatter:
    selector = name in palette.STYLES
    look = palette.style(name) if selector else None
    key = "control" if is_control and not selector else name
    mean, (low, high) = _mean(frame), _reach(frame)
    nll = mean * LN10
    rows = frame["rows_removed"][0]
    lines = [f"perplexity {formats.perplexity(nll)}", f"NLL {nll:.4f} nats per token"]
    if rows is not None:
        lines.append(f"{rows:,} rows removed")
    if frame.height > 1:
        lines.append(f"mean and range of {frame.height} seeds")
    role = "" if is_control else f", as large as {control_title(control)}"
    trace = go.Scatter(
        x=[mean], y=[place], mode="markers", legendgroup=key, showlegend=key not in legend,
        name=look.title if look else "the control",
        marker={
            "color": look.colour if look else _CONTROL_COLOUR, "symbol": look.symbol if look else "hexagon2",
            "size": 13 if is_control else 9, "line": {"width": 1.5 if is_control else 0, "color": "#808080"},
        },
        error_x=axes.intervals([(mean, low, high)] if frame.height > 1 else []),
        hovertemplate=f"<b>{control_title(name)}</b>{role}<br>" + "<br>".join(lines) + "<extra></extra>",
    )  # fmt: skip
    legend.add(key)
    return trace


def rank_shares(distribution: pl.DataFrame) -> go.Figure:
    """Where the rows of consensus2's masks stand: stacked shares per rate, with a pattern and a number each."""
    parts = (
        ("both", "in the masks of both LRP and IG", palette.style("consensus2").colour, ""),
        ("only_one", "in one of them", palette.style("ig").colour, "/"),
        ("neither", "in neither", palette.style("random").colour, "x"),
    )
    rows = distribution.sort("rate")
    labels = [formats.rate(rate) for rate in rows["rate"]]
    figure = go.Figure(
        [
            go.Bar(
                x=labels, y=rows[column].to_list(), name=name, text=[_percent(value) for value in rows[column]],
                textposition="inside", insidetextanchor="middle", insidetextfont={"color": "#000000"},
                marker={
                    "color": colour,
                    "pattern": {"shape": shape, "solidity": 0.2, "fillmode": "overlay", "fgcolor": "#FFFFFF"},
                },
                hovertemplate=f"<b>{name}</b><br>%{{x}} removed: %{{y:.3%}}<extra></extra>",
            )
            for column, name, colour, shape in parts
        ]
    )  # fmt: skip
    figure.update_xaxes(type="category", title={"text": "rows removed", "standoff": 5})
    figure.update_yaxes(title="share of Consensus-2's mask", tickformat=".0%", range=[0, 1])
    figure.update_layout(barmode="stack")
    return finished(figure, "Where Consensus-2 takes its rows from")


def _percent(value: Any) -> str:
    return "" if value is None or not math.isfinite(value) or value < 0.02 else f"{value:.1%}"
