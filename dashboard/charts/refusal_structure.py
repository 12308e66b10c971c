"""Where refusal contrasts lie: density, projections and depths, overlap of domains and methods, methods over models."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, matrix, palette
from dashboard.charts.lines import finished
from dashboard.charts.matrix import Cell

_TOP, _BOTTOM, _STEP_PX = 66, 96, 30


def densities(table: pl.DataFrame) -> go.Figure:
    """Share of rows with abs(C_comply) > 0.5, per domain, a mark per selector."""
    return _dots(
        table.rename({"density": "value", "domain": "place"}), "Signal density", "share of rows with |C_comply| > 0.5",
        "share of all rows", tickformat=".1%",
    )  # fmt: skip


def shares(table: pl.DataFrame, heading: str, below: str) -> go.Figure:
    """Share of the top rows in each part, a mark per selector; the bar is what chance would give (base rate)."""
    return _dots(
        table.rename({"share": "value", "name": "place"}), heading, below, "share of the top rows", tickformat=".0%",
        base="base_rate",
    )  # fmt: skip


def _dots(
    table: pl.DataFrame, heading: str, below: str, axis: str, *, tickformat: str, base: str | None = None
) -> go.Figure:
    places = table["place"].unique(maintain_order=True).to_list()
    figure = go.Figure()
    if base and table[base].null_count() < table.height:
        rates = {row["place"]: row[base] for row in table.iter_rows(named=True)}
        figure.add_bar(
            x=[rates[place] for place in places], y=list(range(len(places))), orientation="h", width=0.7,
            name="all rows (chance)", marker={"color": palette.REFERENCE, "opacity": 0.35},
            customdata=places, hovertemplate="%{customdata}: %{x:.2%} of all rows<extra></extra>",
        )  # fmt: skip
    selectors = palette.in_order(table["selector"].unique().to_list())
    for index, selector in enumerate(selectors):
        look, rows = palette.style(selector), list(table.filter(selector=selector).iter_rows(named=True))
        shift = 0.6 * ((index + 0.5) / len(selectors) - 0.5)
        figure.add_scatter(
            x=[row["value"] for row in rows], y=[places.index(row["place"]) + shift for row in rows], mode="markers",
            name=look.title, marker={"color": look.colour, "symbol": look.symbol, "size": 9},
            customdata=[row["place"] for row in rows],
            hovertemplate=f"<b>{look.title}</b>, %{{customdata}}: %{{x:.2%}}<extra></extra>",
        )  # fmt: skip
    columns = ["value", *([base] if base else [])]
    figure.update_xaxes(**axes.titled(axis, tickformat=tickformat, range=_from_zero(table, columns)))
    figure.update_yaxes(**axes.places(places))
    return finished(figure, heading, below, _TOP + _BOTTOM + _STEP_PX * max(len(places), 4), bottom=_BOTTOM)


def _from_zero(table: pl.DataFrame, columns: Sequence[str]) -> list[float]:
    """A range from 0 to beyond the largest value, so that its mark is not cut."""
    values = [value for name in columns for value in table[name].drop_nulls()]
    return [0.0, 1.08 * max(values, default=0.0) or 1.0]


def clusters(table: pl.DataFrame, domains: Sequence[str], heading: str) -> go.Figure:
    """Jaccard of the top rows of every pair of domains. table: one selector of `refusal_jaccard`."""
    found = {}
    for row in table.iter_rows(named=True):
        found[row["domain_a"], row["domain_b"]] = found[row["domain_b"], row["domain_a"]] = row
    values: list[list[Cell]] = [[found[a, b]["jaccard"] if (a, b) in found else None for b in domains] for a in domains]
    hover = [
        [
            f"<b>{a} and {b}</b><br>Jaccard {found[a, b]['jaccard']:.4f}<br>random rows: "
            f"{found[a, b]['expected_random']:.4f}"
            if (a, b) in found
            else ""
            for b in domains
        ]
        for a in domains
    ]
    chance = table["expected_random"].mean()
    below = f"random rows would share {chance:.3f}" if isinstance(chance, float) else ""
    return matrix.matrix(
        values, domains, domains, heading=heading, below=below, text=matrix.number, hover=hover, span=(0.0, 1.0),
    )  # fmt: skip


def methods_overlap(table: pl.DataFrame, pair: tuple[str, str]) -> go.Figure:
    """Jaccard of two selectors' top rows per domain, beside chance."""
    titles = " and ".join(palette.title(name) for name in pair)
    domains = table["domain_a"].to_list()
    figure = go.Figure().add_scatter(
        x=table["jaccard"].to_list(), y=list(range(len(domains))), mode="markers", name=titles,
        marker={"size": 11, "symbol": "diamond", "color": "#7A88E7"}, customdata=domains,
        hovertemplate="%{customdata}: Jaccard %{x:.4f}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=table["expected_random"].to_list(), y=list(range(len(domains))), mode="markers", name="random rows",
        marker={"size": 11, "symbol": "line-ns-open", "color": palette.REFERENCE, "line": {"width": 2}},
        customdata=domains, hovertemplate="random rows, %{customdata}: %{x:.4f}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(**axes.titled("Jaccard", range=_from_zero(table, ["jaccard", "expected_random"])))
    figure.update_yaxes(**axes.places(domains))
    return finished(
        figure, f"Do {titles} take the same rows?", "top rows of each domain",
        _TOP + _BOTTOM + _STEP_PX * max(len(domains), 4), bottom=_BOTTOM,
    )  # fmt: skip


def reversal(table: pl.DataFrame, domain: str) -> go.Figure:
    """Malign refusal of the methods on one domain over models. table: model, domain, selector, malign, rescue."""
    part = table.filter(domain=domain)
    models = part["model"].unique(maintain_order=True).to_list()
    figure = go.Figure()
    for place, model in enumerate(models):
        rates = part.filter(model=model)["malign"].drop_nulls().to_list()
        if len(rates) > 1:
            axes.joined(figure, [min(rates), max(rates)], place, dash="dot")
    for selector in palette.in_order(part["selector"].unique().to_list()):
        look = palette.style(selector)
        rows = list(part.filter(selector=selector).iter_rows(named=True))
        figure.add_scatter(
            x=[row["malign"] for row in rows], y=[models.index(row["model"]) for row in rows],
            mode="markers+text", name=look.title, text=["rescue" if row["rescue"] else "" for row in rows],
            textposition="top center", marker={"color": look.colour, "symbol": look.symbol, "size": 11},
            customdata=[
                [html.escape(row["model"]), "<br>rescued, relaxed benign limit" if row["rescue"] else ""]
                for row in rows
            ],
            hovertemplate=f"<b>{look.title}</b>, %{{customdata[0]}}<br>malign refusal %{{x:.1%}}%{{customdata[1]}}"
            "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(**axes.titled("malign refusal after the edit", tickformat=".0%", range=[-0.03, 1.03]))
    figure.update_yaxes(**axes.places([_short(model) for model in models]))
    return finished(
        figure, f"Which method installs more refusal? {palette.capital(domain)}", "each at its own operating point",
        _TOP + _BOTTOM + 40 * max(len(models), 3), bottom=_BOTTOM,
    )  # fmt: skip


def _short(model: str) -> str:
    """The last part of a model's name without "Instruct", safe in a figure."""
    return html.escape(model.rstrip("/").rsplit("/", 1)[-1].replace("-Instruct", ""))
