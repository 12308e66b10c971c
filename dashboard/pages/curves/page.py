"""Curves: perplexity against removed rows, LeRF and MoRF, measured and published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import curves as curve_chart, formats, multiples, palette, series
from dashboard.charts.findings import curves as findings
from dashboard.pages.curves import differences, measures, parts, point
from dashboard.show import layout, selection, tools
from dashboard.state import compared, offers, results, sources
from engine.stats.limits import BASELINE

LINE = "Left, rows called unimportant go first: low is good. Right, those called important: high is good."
MEASURES, PARTS = "Measures", "Parts"
CURVES, GAP, MODELS, DIFFERENCES = VIEWS = ("Curves", "Gap", "Models", "Differences")
HOW_TO_READ = (
    "Each curve removes more and more rows by one selector's ranking. A ranking that finds what matters stays "
    "low under LeRF (unimportant rows go first) and shoots up under MoRF (important rows go first). A click on a point "
    "of a model that was scored leads to the rows that it removes."
)

INSTEAD = {"mean": "set to their mean", "resample": "taken from another window"}  # of the rows' outputs


@dataclass(frozen=True)
class Drawn:
    """One model's curves from one source, ready to be drawn."""

    name: str
    source: str
    model: str
    curves: results.Curves
    points: pl.DataFrame


def render() -> None:
    """The page."""
    picked = sources.pick(layout.heading("Curves", LINE), (results.SWEEP,))
    if picked is None:
        return
    curves, under = (results.read_paper(), "") if picked.run is None else _intervention(picked.run)
    further = {MEASURES: measures.STEM, PARTS: parts.STEM}
    views = (*VIEWS, *(name for name, stem in further.items() if picked.has(stem)))
    view = selection.switch("View", views, "view", default=CURVES, place=picked.bar)
    with picked.drawer():
        drawn, orders, relative = _choose_points(picked.kind, curves, picked.model)
    if drawn.points.is_empty():
        st.info("Nothing is chosen: choose at least one selector and a range of rates that holds a measured point.")
        return
    if relative and view in (CURVES, MODELS):
        _say_without_baseline({drawn.name: series.unmasked_nll(curves.frame, drawn.model)})
    values = series.download_values(drawn.points, drawn.model, drawn.source)
    notes, provenance = _notes(drawn), [curves.provenance]
    if under:
        notes.insert(0, f"Rows changed by the intervention {under}.")
    if view == CURVES:
        _curves_tab(picked, drawn, orders, relative, under)
        layout.how_to_read(HOW_TO_READ)
    elif view == GAP:
        _gap_tab(picked, drawn)
    elif view == MODELS:
        offered = offers.offers(picked.kind, curves, picked.run)
        beside = list(compared.chosen(offered).values()) or offers.beside(picked.kind, offered)
        values = _models_tab(beside, drawn, orders, relative)
        notes = ["Models differ in size, text and vocabulary: compare shapes, not heights."]
        notes += _starts([(offer.name, offer.curves) for offer in beside])
        provenance = [offer.curves.provenance for offer in beside]
    elif view == MEASURES:
        with layout.told():
            values = measures.render(picked, drawn.points, orders)
            notes, provenance = list(measures.NOTES), picked.provenance
    elif view == PARTS:
        with layout.told():
            values = parts.render(picked)
            notes, provenance = list(parts.NOTES), picked.provenance
    elif view == DIFFERENCES:
        with layout.told():
            values = differences.render(picked)
            notes, provenance = list(differences.NOTES), picked.provenance
    name = f"curves-{tools.file_name(drawn.model)}"
    tools.end(values, name, *notes, provenance=provenance)


def _intervention(run: Path) -> tuple[results.Curves, str]:
    """The run's curves and, where it has them under several interventions, under which one is looked at."""
    found = {results.ZERO: results.read_run(run)}
    with layout.told():  # a damaged table of further ones leaves the sweep
        found = results.read_interventions(run)
    if len(found) == 1:
        return next(iter(found.values())), ""
    name = selection.switch(
        "Intervention", list(found), "intervention", default=next(iter(found)),
        help_text="What is done to the chosen rows: their outputs are set to zero, to their mean over the calibration "
        "text, or to what they are on another window.",
    )  # fmt: skip
    return found[name], name


def _choose_points(source: str, curves: results.Curves, model: str) -> tuple[Drawn, list[str], bool]:
    """The remaining controls, and the points that they leave."""
    frame = curves.frame.filter(pl.col("model") == model)
    available = palette.in_order(frame["selector"].unique().to_list())
    selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    with st.container(horizontal=True, gap="medium"):
        order = selection.switch("Order", ("Both", "LeRF", "MoRF"), "order", default="Both")
        scale = selection.switch(
            "Scale", ("Perplexity", "÷ unmasked"), "scale", default="Perplexity",
            help_text="Divided by the unmasked model's perplexity, models of different quality can be compared.",
        )  # fmt: skip
        with st.container(width="stretch"):
            rates = selection.rate_range("Rows removed", sorted(set(frame["rate"])), "rates", title=formats.rate)
    orders = list(results.ORDERS) if order == "Both" else [order.lower()]
    orders = [name for name in orders if name in set(frame["order"])]
    relative = scale != "Perplexity"
    points = series.points(frame, model, selectors, orders, rates)
    return Drawn(formats.model_title(model), source, model, curves, points), orders, relative


def _say_without_baseline(baselines: dict[str, float | None]) -> None:
    missing = [name for name, baseline in baselines.items() if baseline is None]
    if missing:
        st.info(
            f"Not drawn: {layout.plain(', '.join(missing))}. The unmasked model was not measured there, so there is "
            "nothing to divide by; choose the scale Perplexity, or run the sweep again with 0 among its `--rates`."
        )


def _curves_tab(picked: sources.Source, drawn: Drawn, orders: list[str], relative: bool, under: str) -> None:
    """under: the intervention that was chosen, "" where there is no choice."""
    zeroed = under in ("", results.ZERO)
    done = "" if zeroed else f" and are {INSTEAD.get(under, f'changed by {under}')}"
    unmasked = series.unmasked_nll(drawn.curves.frame, drawn.model)
    clickable, limit = point.clickable(picked), drawn.curves.saturated_above
    apart = {order: findings.seeds_apart(drawn.curves.frame, drawn.model, order, limit) for order in orders}
    seeds = _seeds(drawn, orders) if any(apart.values()) else []
    figures = {
        order: curve_chart.curves(
            drawn.points, order, relative=relative, baseline=unmasked, saturated=limit, seeds=seeds,
        )
        for order in orders
    }  # fmt: skip
    zone = "" if limit is None else f"; {curve_chart.DESTROYED}: perplexity above {formats.perplexity(limit)}"
    with picked.stage:
        point.show(picked, point.clicked(figures) if clickable else [], zeroed=zeroed)
    with picked.hero():
        for (order, figure), column in zip(figures.items(), st.columns(len(orders)), strict=True):
            with column:
                tools.show(
                    figure, f"{tools.file_name(drawn.model)}-{order}", key=point.key_of(order), clickable=clickable,
                    finding=findings.curve(drawn.points, order, shift=curve_chart.subtracted(unmasked, relative)),
                    below=f"{done}; ".join(curve_chart.ORDER_HEADINGS[order]) + zone * _has_zone(figure)
                    + apart[order], hero=True,
                )  # fmt: skip


def _seeds(drawn: Drawn, orders: list[str]) -> list[pl.DataFrame]:
    """The points of each random ranking by itself, where Random is among what is drawn."""
    random = drawn.points.filter(selector=BASELINE)
    if random.is_empty():
        return []
    frame = drawn.curves.frame.filter(selector=BASELINE, model=drawn.model)
    rates = (random["rate"].min(), random["rate"].max())
    return [
        series.points(own, drawn.model, [BASELINE], orders, rates)  # type: ignore[arg-type]
        for own in frame.partition_by("seed")
    ]


def _has_zone(figure: go.Figure) -> bool:
    return any(note.text == curve_chart.DESTROYED for note in figure.layout.annotations)


def _gap_tab(picked: sources.Source, drawn: Drawn) -> None:
    gaps = series.gaps(drawn.points)
    if gaps.is_empty():
        st.info("The gap needs both orders: choose “Both” and at least one selector measured in both.")
        return
    with picked.hero():
        tools.show(
            curve_chart.gap(gaps), f"{tools.file_name(drawn.model)}-gap", finding=findings.gap(gaps),
            below="NLL(MoRF) − NLL(LeRF): large is good, below 0 is inverted; the heading counts a loss up to where "
            "the model is destroyed", hero=True,
        )  # fmt: skip


def _models_tab(beside: list[offers.Offer], drawn: Drawn, orders: list[str], relative: bool) -> pl.DataFrame:
    """The same selectors, orders and rates for every model; returns all values that are drawn."""
    selectors = drawn.points["selector"].unique().to_list()
    low, high = drawn.points["rate"].min(), drawn.points["rate"].max()
    panels, values = [], []
    for offer in beside:
        frame = offer.curves.frame
        found = series.points(frame, offer.model, selectors, orders, (low, high))  # type: ignore[arg-type]
        if found.height:
            name = formats.model_title(offer.model)
            if sum(formats.model_title(other.model) == name for other in beside) > 1:
                name = offer.name
            panels.append(multiples.Panel(name, found, series.unmasked_nll(frame, offer.model)))
            values.append(series.download_values(found, offer.model, offer.name))
    if relative:
        _say_without_baseline({panel.name: panel.baseline for panel in panels})
    if not panels:
        st.info("None of these models was measured with these selectors, orders and rates; choose others.")
        return drawn.points.clear()
    rows = -(-len(panels) // compared.MOST)
    columns = -(-len(panels) // rows)
    for order in orders:
        figure = multiples.multiples(panels, order, columns=columns, relative=relative)
        with st.container(key=f"multiples-{order}"):  # where it is narrow it scrolls (frame.css)
            told = findings.over_models([panel.points for panel in panels], order)
            tools.show(figure, f"models-{order}", finding=told, below="; ".join(curve_chart.ORDER_HEADINGS[order]))
    return pl.concat(values)


def _notes(drawn: Drawn) -> list[str]:
    points, notes = drawn.points, []
    if broken := points.filter(pl.col("nll").is_null() | ~pl.col("nll").is_finite()).height:
        notes.append(f"{broken} value(s) are not finite: arrows at the upper edge.")
    if points["plateau"].any():
        notes.append("Ringed: published cells at a numerical ceiling; only their order counts.")
    limit = drawn.curves.saturated_above
    if limit is not None and any(value is not None and value > limit for value in points["nll"]):
        notes.append(
            "Grey zone: the model is destroyed, its NLL more than half-way to that of uniform predictions. Differences "
            "there mean nothing."
        )
    if points["seeds"].max() not in (None, 1):
        notes.append(
            "Random is the mean NLL of its seeds with their standard deviation, or a thin line for each seed where "
            f"only some destroy the model; other error bars are the standard error over {drawn.curves.errors}."
        )
    elif points["error"].null_count() < points.height:
        notes.append(f"Error bars: standard error over {drawn.curves.errors}.")
    return notes


def _starts(shown: Sequence[tuple[str, results.Curves]]) -> list[str]:
    """NLLs of windows behind a BOS and of windows without one do not compare, of one model either."""
    begun = {name: curves.before_windows for name, curves in shown if curves.before_windows is not None}
    if len(set(begun.values())) < 2:
        return []
    told = [
        f"{name}: {f'behind the tokens {list(one)}' if one else 'with nothing before them'}"
        for name, one in begun.items()
    ]
    return [f"Windows do not begin alike ({'; '.join(told)}): compare shapes, not heights."]
