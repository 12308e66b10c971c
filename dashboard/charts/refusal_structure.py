"""Where refusal contrasts lie: density, projections and depths, overlap of domains and methods, methods over models."""

import html
from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, matrix, palette
from dashboard.charts.refusal_values import percent

_BOTTOM, _STEP_PX = 96, 30


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
    table: pl.DataFrame, heading: str, below: str, title: str, *, tickformat: str, base: str | None = None
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
    selectors = palette.in_order(table["selector"])
    for selector, shift in zip(selectors, dots.shifts(len(selectors), 0.6 / len(selectors)), strict=True):
        look = palette.style(selector)
        marks = []
        for row in table.filter(selector=selector).iter_rows(named=True):
            hover = f"<b>{look.title}</b>, {row['place']}: {percent(row['value'])}"
            marks.append(dots.Dot(places.index(row["place"]) + shift, row["value"], hover))
        dots.add(figure, look.title, marks, look.colour, look.symbol, size=9)
    axis = {"tickformat": tickformat, "range": _from_zero(table, ["value", *([base] if base else [])])}
    return dots.finished(figure, places, title, heading, below, row_px=_STEP_PX, bottom=_BOTTOM, axis=axis)


def _from_zero(table: pl.DataFrame, columns: Sequence[str]) -> list[float]:
    """A range from 0 to beyond the largest value, so that its mark is not cut."""
    values = [value for name in columns for value in table[name].drop_nulls()]
    return [0.0, 1.08 * max(values, default=0.0) or 1.0]


def clusters(table: pl.DataFrame, domains: Sequence[str], heading: str) -> go.Figure:
    """Jaccard of the top rows of every pair of domains. table: one selector of `refusal_jaccard`."""
    values: dict[tuple[str, str], float] = {}
    hover: dict[tuple[str, str], str] = {}
    for a, b, jaccard, chance in table.select("domain_a", "domain_b", "jaccard", "expected_random").rows():
        for one, other in ((a, b), (b, a)):
            values[one, other] = jaccard
            hover[one, other] = f"<b>{one} and {other}</b><br>Jaccard {jaccard:.4f}<br>random rows: {chance:.4f}"
    chance = table["expected_random"].mean()
    below = f"random rows would share {chance:.3f}" if isinstance(chance, float) else ""
    return matrix.matrix(
        [[values.get((a, b)) for b in domains] for a in domains], domains, domains, heading=heading, below=below,
        text=matrix.number, hover=[[hover.get((a, b), "") for b in domains] for a in domains], span=(0.0, 1.0),
    )  # fmt: skip


def methods_overlap(table: pl.DataFrame, pair: tuple[str, str]) -> go.Figure:
    """Jaccard of two selectors' top rows per domain, beside chance."""
    titles = " and ".join(palette.title(name) for name in pair)
    figure = go.Figure()
    for column, name, colour, symbol in (
        ("jaccard", titles, "#7A88E7", "diamond"),
        ("expected_random", "random rows", palette.REFERENCE, "line-ns-open"),
    ):
        marks = [
            dots.Dot(place, value, f"<b>{name}</b>, {domain}: Jaccard {value:.4f}")
            for place, (domain, value) in enumerate(table.select("domain_a", column).iter_rows())
        ]
        dots.add(figure, name, marks, colour, symbol)
    axis = {"range": _from_zero(table, ["jaccard", "expected_random"])}
    heading, below = f"Do {titles} take the same rows?", "top rows of each domain"
    labels = table["domain_a"].to_list()
    return dots.finished(figure, labels, "Jaccard", heading, below, row_px=_STEP_PX, bottom=_BOTTOM, axis=axis)


def reversal(table: pl.DataFrame, domain: str) -> go.Figure:
    """Malign refusal of the methods on one domain over models. table: model, domain, selector, malign, rescue."""
    of_domain = table.filter(domain=domain)
    models = of_domain["model"].unique(maintain_order=True).to_list()
    figure = go.Figure()
    rates = [of_domain.filter(model=model)["malign"].drop_nulls().to_list() for model in models]
    ends = {place: (min(shares), max(shares)) for place, shares in enumerate(rates) if len(shares) > 1}
    axes.joined(figure, ends, dash="dot")
    for selector in palette.in_order(of_domain["selector"]):
        look, rows = palette.style(selector), list(of_domain.filter(selector=selector).iter_rows(named=True))
        marks = []
        for row in rows:
            rescued = "<br>rescued, relaxed limit of harmless prompts" if row["rescue"] else ""
            hover = f"<b>{look.title}</b>, {html.escape(row['model'])}"
            hover += f"<br>risk prompts refused {percent(row['malign'])}{rescued}"
            marks.append(dots.Dot(models.index(row["model"]), row["malign"], hover))
        dots.add(figure, look.title, marks, look.colour, look.symbol)
        named = ["rescue" if row["rescue"] else "" for row in rows]
        figure.data[-1].update(mode="markers+text", text=named, textposition="top center")
    heading, below = f"Which method installs more refusal? {palette.capital(domain)}", "each at its own operating point"
    short = [html.escape(model.rstrip("/").rsplit("/", 1)[-1].replace("-Instruct", "")) for model in models]
    return dots.finished(
        figure, short, "risk prompts refused after the edit", heading, below, row_px=40, bottom=_BOTTOM, axis=dots.SHARE
    )
