"""Refusal rates with their intervals: before and after, real and random masks, masks of one and of two domains."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, palette
from dashboard.charts.lines import finished
from dashboard.charts.refusal_values import RateChange, Row, percent

CONTROL_TITLES = {"layer_matched": "Random, same layers", "global_random": "Random, anywhere"}
_CONTROL_SYMBOL, _CONTROL_COLOUR = "x", "#C61620"
_DOMAIN_LOOKS = (("#7A88E7", "circle"), ("#DD7A02", "square"), ("#08A95B", "diamond"), ("#B70D9B", "triangle-up"))


def changes(sets: Sequence[RateChange]) -> go.Figure:
    """Every set of prompts: share refused before and after, with 95% intervals."""
    names = [
        f"{html.escape(one.prompts)}: {'should be refused' if one.malign else 'should be answered'}" for one in sets
    ]
    places = list(range(len(sets)))
    figure = go.Figure()
    for one, place in zip(sets, places, strict=True):
        if one.before[0] is not None and one.after[0] is not None:
            axes.joined(figure, [one.before[0], one.after[0]], place, dash="dot")
    for side, name, colour, symbol in (
        ("before", "unedited", palette.BEFORE, "circle-open"),
        ("after", "edited", palette.AFTER, "diamond"),
    ):
        rates = [getattr(one, side) for one in sets]
        figure.add_scatter(
            x=[rate[0] for rate in rates], y=places, mode="markers", name=name,
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
            error_x=axes.intervals(rates, thickness=1.5, colour=colour),
            customdata=[
                f"{label}<br>{name}: {percent(*rate)}" + (f"<br>{one.n:,} prompts" if one.n else "")
                for label, rate, one in zip(names, rates, sets, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(**axes.titled("refused", range=[-0.03, 1.03], tickformat=".0%"))
    figure.update_yaxes(
        tickvals=places, ticktext=[name.replace(": ", ":<br>") for name in names], range=[len(sets) - 0.5, -0.5],
        zeroline=False,
    )  # fmt: skip
    return finished(figure, "Before and after", "95% intervals", 170 + 46 * max(len(sets), 2), bottom=90)


def controls(point: Row, seeds: pl.DataFrame | None) -> go.Figure:
    """Malign refusal of the edit beside random masks with as many rows: one mark per seed, or mean and largest.

    point: a row of `operating_points`. seeds: its rows of `refusal_controls`, None where only the summary is known.
    """
    figure = go.Figure()
    names = ["The edit"]
    real = (point["edited_malign"], point.get("edited_malign_low"), point.get("edited_malign_high"))
    figure.add_scatter(
        x=[real[0]], y=[0], mode="markers", name="edit",
        error_x=axes.intervals([real], thickness=1.5, colour=palette.AFTER),
        marker={"symbol": "diamond", "size": 12, "color": palette.AFTER},
        hovertemplate=f"the edit: {percent(*real)}<extra></extra>",
    )  # fmt: skip
    for kind, prefix in (("layer_matched", "control"), ("global_random", "global")):
        marks = _control_marks(point, seeds, kind, prefix)
        if not marks:
            continue
        names.append(CONTROL_TITLES[kind])
        figure.add_scatter(
            x=[rate for rate, _ in marks], y=[len(names) - 1] * len(marks), mode="markers",
            name=CONTROL_TITLES[kind].lower(), marker={"symbol": _CONTROL_SYMBOL, "size": 10, "color": _CONTROL_COLOUR},
            customdata=[text for _, text in marks], hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    if point.get("unedited_malign") is not None:
        axes.level(figure, "unedited", x=point["unedited_malign"])
    figure.update_xaxes(**axes.titled("malign refusal", range=[-0.03, 1.03], tickformat=".0%"))
    figure.update_yaxes(**axes.places([name.replace(", ", ",<br>") for name in names]))
    figure.update_layout(showlegend=False)
    return finished(
        figure, "The edit beside random masks", "as many rows, not searched", 140 + 50 * len(names), bottom=50
    )


def _control_marks(point: Row, seeds: pl.DataFrame | None, kind: str, prefix: str) -> list[tuple[float, str]]:
    if seeds is not None and (seeds["control"] == kind).any():
        return [
            (row["malign"], f"{CONTROL_TITLES[kind].lower()}, seed {row['seed']}: {percent(row['malign'])}")
            for row in seeds.filter(control=kind).iter_rows(named=True)
            if row["malign"] is not None
        ]
    found = [(point.get(f"{prefix}_malign"), "mean"), (point.get(f"{prefix}_malign_max"), "largest")]
    return [(rate, f"{name} of the seeds: {percent(rate)}") for rate, name in found if rate is not None]


def composed(table: pl.DataFrame, kind: str) -> go.Figure:
    """Rates of masks from one and from several domains, on the prompts of each domain.

    table: one selector of `composed`. kind: `malign` or `benign`.
    """
    masks = table["mask_domain"].unique(maintain_order=True).to_list()
    domains = table["evaluated_domain"].unique(maintain_order=True).to_list()
    figure = go.Figure()
    for index, domain in enumerate(domains):
        colour, symbol = _DOMAIN_LOOKS[index % len(_DOMAIN_LOOKS)]
        rows = list(table.filter(evaluated_domain=domain).iter_rows(named=True))
        rates = [(row[kind], row[f"{kind}_low"], row[f"{kind}_high"]) for row in rows]
        shift = 0.24 * (index - (len(domains) - 1) / 2)
        figure.add_scatter(
            x=[rate[0] for rate in rates], y=[masks.index(row["mask_domain"]) + shift for row in rows],
            mode="markers", name=f"{domain} prompts", error_x=axes.intervals(rates, thickness=1.5, colour=colour),
            marker={"color": colour, "symbol": symbol, "size": 10},
            customdata=[
                f"<b>{mask_title(row['mask_domain'])}</b> on {domain} prompts<br>{kind} {percent(*rate)}<br>"
                f"{row[f'{kind}_n']:,} prompts<br>{row['rows_removed']:,} rows removed"
                for row, rate in zip(rows, rates, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(**axes.titled("refused", range=[-0.03, 1.03], tickformat=".0%"))
    figure.update_yaxes(**axes.places([mask_title(name) for name in masks]))
    title = "Risk prompts" if kind == "malign" else "Harmless prompts"
    below = "should be refused" if kind == "malign" else "should be answered"
    return finished(figure, title, below, 170 + 50 * len(masks), bottom=90)


def mask_title(mask_domain: str) -> str:
    """`unedited`, `hate mask`, `hate + crime mask`."""
    return "unedited" if mask_domain == "none" else f"{html.escape(mask_domain).replace('+', ' + ')} mask"
