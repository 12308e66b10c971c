"""Curves: perplexity against removed rows, LeRF and MoRF, measured and published; which differences are real,
what a sweep measured beside NLL, and the parts of a mask that do its harm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import curves as curve_chart, formats, lines, mask_parts as parts_chart, palette, series
from dashboard.charts.findings import curve_findings as findings
from dashboard.chat import edits
from dashboard.pages.rows import scored
from dashboard.show import layout, menu, selection, tools
from dashboard.state import offers, results, sources
from engine.records.errors import InputError
from engine.stats.blocks import has_blocks
from engine.stats.limits import BASELINE
from engine.studies.estimate_words import units_in_words

LINE = "Rows called unimportant go first (LeRF): low is good. Those called important go first (MoRF): high is good."
MEASURES, PARTS = "Measures", "Parts"
CURVES, GAP, MODELS, DIFFERENCES = VIEWS = ("Curves", "Gap", "Models", "Differences")
DESTROYED_NOTE = (
    "Grey zone: the model is destroyed, its NLL more than half-way to that of uniform predictions. Differences there "
    "mean nothing. Pale: scores in it at the heading's rate, by which perplexity doubles no later than by random rows."
)
BELOW_GAP = (
    "NLL(MoRF) − NLL(LeRF): large is good, below 0 is inverted; the heading counts a loss up to where the model is "
    "destroyed"
)
HOW_TO_READ = (
    "Each curve removes more and more rows by one selector's ranking. A ranking that finds what matters stays "
    "low under LeRF (unimportant rows go first) and shoots up under MoRF (important rows go first). A click on a point "
    "of a model that was scored leads to the rows that it removes."
)

INSTEAD = {"mean": "set to their mean", "resample": "taken from another window"}  # of the rows' outputs
OFFERED = "Rows and Live edit offer 0.25, 0.5, 1, 2, 3% and 5% to 90% in steps of 5%."
OF_DIFFERENCES = (
    "Many pairs are compared at once: p is adjusted by Holm over all of them, and what is told apart has at most .05."
)
_PAIRED = "All selectors read the same text: what tells them apart is under Differences."
OF_MEASURES = (
    "Error bars: 95% intervals over windows or prompts, as if these were independent; of random the standard deviation "
    "over its seeds."
)
OF_PARTS = (
    "Shares of several parts need not add up to 100%: parts that do harm only together, or each alone, exist. Error "
    "bars: 95% intervals over blocks of text of what goes, over the harm that was measured."
)


class Point(NamedTuple):
    """A mask: the rows that an order removes at a rate."""

    selector: str
    order: str
    rate: float


@dataclass(frozen=True)
class Drawn:
    """One model's curves from one source, ready to be drawn."""

    name: str
    source: str
    model: str
    curves: results.Curves
    points: pl.DataFrame


def render() -> None:
    picked = sources.pick(layout.heading("Curves", LINE), (results.SWEEP,))
    if picked is None:
        return
    curves, under = (results.read_paper(), "") if picked.run is None else _intervention(picked.run)
    further_views = [name for name, stem in ((MEASURES, "sweep_measures"), (PARTS, "parts")) if picked.has(stem)]
    view = selection.switch("View", (*VIEWS, *further_views), "view", default=CURVES, place=picked.bar)
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
        gaps = series.gaps(drawn.points)
        if gaps.is_empty():
            st.info("The gap needs both orders: choose “Both” and at least one selector measured in both.")
        else:
            figure, name = curve_chart.gap(gaps), f"{tools.file_name(drawn.model)}-gap"
            picked.show(figure, name, finding=findings.gap(gaps), below=BELOW_GAP)
    elif view == MODELS:
        offered = offers.offers(picked.kind, curves, picked.run)
        beside = list(offers.compared(offered).values()) or offers.beside(picked.kind, offered)
        values = _models_tab(beside, drawn, orders, relative)
        notes = ["Models differ in size, text and vocabulary: compare shapes, not heights."]
        notes += _starts([(offer.name, offer.curves) for offer in beside])
        provenance = [offer.curves.provenance for offer in beside]
    else:
        with layout.told():
            if view == MEASURES:
                values, notes = _measures(picked, drawn.points, orders), [OF_MEASURES]
            elif view == PARTS:
                values, notes = _parts(picked), [OF_PARTS]
            else:
                values, notes = _differences(picked), [OF_DIFFERENCES]
            provenance = picked.provenance
    name = f"curves-{tools.file_name(drawn.model)}"
    tools.end(values, name, *notes, provenance=provenance)


def _intervention(run: Path) -> tuple[results.Curves, str]:
    """The run's curves and, where it has them under several interventions, under which one is looked at."""
    by_intervention = {results.ZERO: results.read_run(run)}
    with layout.told():  # a damaged table of further ones leaves the sweep
        by_intervention = results.read_interventions(run)
    if len(by_intervention) == 1:
        return next(iter(by_intervention.values())), ""
    name = selection.switch(
        "Intervention", list(by_intervention), "intervention", default=next(iter(by_intervention)),
        help_text="What is done to the chosen rows: their outputs are set to zero, to their mean over the calibration "
        "text, or to what they are on another window.",
    )  # fmt: skip
    return by_intervention[name], name


def _choose_points(source: str, curves: results.Curves, model: str) -> tuple[Drawn, list[str], bool]:
    """The remaining controls, and the points that they leave."""
    frame = curves.frame.filter(pl.col("model") == model)
    available = palette.in_order(frame["selector"])
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
    clickable = not picked.published and (picked.folder / scored.SCORES).is_file()  # so that a point has a mask
    limit = drawn.curves.saturated_above
    apart = [findings.seeds_apart(drawn.curves.frame, drawn.model, order, limit) for order in orders]
    seeds = _seeds(drawn, orders) if any(apart) else []
    thin = {order: [f"thin: {'other random rows' if order == 'morf' else 'random'}{one}"] if seeds
            else [curve_chart.ORDER_HEADINGS[order][1]] for order, one in zip(orders, apart, strict=True)}  # fmt: skip
    figures = {
        order: curve_chart.curves(
            drawn.points, order, relative=relative, baseline=unmasked, saturated=limit, seeds=seeds,
        )
        for order in orders
    }  # fmt: skip
    with picked.stage:
        _links(picked, _clicked(figures) if clickable else [], zeroed=zeroed)
    with picked.hero():
        for (order, figure), column in zip(figures.items(), st.columns(len(orders)), strict=True):
            with column:
                tools.show(
                    figure, f"{tools.file_name(drawn.model)}-{order}", key=_key_of(order), clickable=clickable,
                    finding=findings.curve(drawn.points, order, shift=unmasked if relative else 0.0),
                    below=f"{done}; ".join([curve_chart.ORDER_HEADINGS[order][0], *thin[order]]), hero=True,
                )  # fmt: skip


def _key_of(order: str) -> str:
    """The key of the figure of one order."""
    return f"curves-{order}"


def _clicked(figures: Mapping[str, go.Figure]) -> list[Point]:
    """The points of these figures, by order, that were clicked before this run."""
    points = []
    for order, figure in figures.items():
        for point in tools.clicked(_key_of(order))[-1:]:
            number, place = point.get("curve_number"), point.get("point_index")
            if not isinstance(number, int) or not isinstance(place, int) or not 0 <= number < len(figure.data):
                continue
            trace = figure.data[number]
            if trace.legendgroup and trace.x is not None and 0 <= place < len(trace.x):
                points.append(Point(trace.legendgroup, order, float(trace.x[place])))
    return points


def _links(picked: sources.Source, points: list[Point], *, zeroed: bool) -> None:
    """Links for each of them. zeroed: were the rows zeroed, as Live edit does?"""
    if not points:
        return
    try:
        scores = scored.read(picked.folder)
    except InputError as error:
        layout.problem(error)
        return
    for point in points:
        seed = ", its first seed" if point.selector == "random" else ""
        title = f"{palette.title(point.selector)}{seed}, {series.ORDER_TITLES[point.order]} {formats.rate(point.rate)}"
        rate = edits.rate_of(point.rate)
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            st.markdown(f"**{layout.plain(title)}**", width="content")
            if point.selector not in scores.selectors:
                st.caption("This folder holds no scores of this selector.")
            elif rate is None:
                st.caption("Nothing is removed here." if point.rate == 0 else OFFERED)
            else:
                cell = {"row_selector": palette.title(point.selector), "row_order": edits.ORDER_TITLES[point.order]}
                shown = {"measure": "Removed rows", **cell, "row_rate": formats.rate(rate)}
                menu.link(edits.TO_ROWS, "rows", shown, icon=":material/grid_on:")
                if zeroed:
                    edits.live_link(scores.folder, scores.load_from, point.selector, point.order, rate)


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


def _models_tab(beside: list[offers.Offer], drawn: Drawn, orders: list[str], relative: bool) -> pl.DataFrame:
    """The same selectors, orders and rates for every model; returns all values that are drawn."""
    selectors = drawn.points["selector"].unique().to_list()
    low, high = drawn.points["rate"].min(), drawn.points["rate"].max()
    panels, values = [], []
    for offer in beside:
        frame = offer.curves.frame
        points = series.points(frame, offer.model, selectors, orders, (low, high))  # type: ignore[arg-type]
        if points.height:
            name = formats.model_title(offer.model)
            if sum(formats.model_title(other.model) == name for other in beside) > 1:
                name = offer.name
            panels.append(curve_chart.Panel(name, points, series.unmasked_nll(frame, offer.model)))
            values.append(series.download_values(points, offer.model, offer.name))
    if relative:
        _say_without_baseline({panel.name: panel.baseline for panel in panels})
    if not panels:
        st.info("None of these models was measured with these selectors, orders and rates; choose others.")
        return drawn.points.clear()
    rows = -(-len(panels) // offers.MOST)
    columns = -(-len(panels) // rows)
    for order in orders:
        figure = curve_chart.multiples(panels, order, columns=columns, relative=relative)
        with st.container(key=f"multiples-{order}"):  # where it is narrow it scrolls (frame.css)
            sentence = findings.over_models([panel.points for panel in panels], order)
            tools.show(figure, f"models-{order}", finding=sentence, below="; ".join(curve_chart.ORDER_HEADINGS[order]))
    return pl.concat(values)


def _notes(drawn: Drawn) -> list[str]:
    points, notes = drawn.points, []
    if broken := points.filter(pl.col("nll").is_null() | ~pl.col("nll").is_finite()).height:
        notes.append(f"{broken} value(s) are not finite: arrows at the upper edge.")
    if points["plateau"].any():
        notes.append("Ringed: published cells at a numerical ceiling; only their order counts.")
    limit = drawn.curves.saturated_above
    if limit is not None and any(value is not None and value > limit for value in points["nll"]):
        notes.append(DESTROYED_NOTE)
    several = points["seeds"].max() not in (None, 1)
    if several:
        notes.append(
            "Random is the mean NLL of its seeds with their standard deviation, or a thin line for each seed where "
            "only some destroy the model."
        )
    if points["interval"].null_count() < points.height:
        few = points.filter(seeds=1)["bar"].null_count() > points.filter(seeds=1)["interval"].null_count()
        bars = f"{'Other error' if several else 'Error'} bars: 95% intervals over {drawn.curves.errors}."
        if few:
            bars = f"A point's hover has its 95% interval over {drawn.curves.errors}, too few for bars that help."
        notes.append(f"{bars} {_PAIRED}")
    return notes


def _starts(shown: Sequence[tuple[str, results.Curves]]) -> list[str]:
    """NLLs of windows behind a BOS and of windows without one do not compare, of one model either."""
    begun = {name: curves.before_windows for name, curves in shown if curves.before_windows is not None}
    if len(set(begun.values())) < 2:
        return []
    notes = [
        f"{name}: {f'behind the tokens {list(one)}' if one else 'with nothing before them'}"
        for name, one in begun.items()
    ]
    return [f"Windows do not begin alike ({'; '.join(notes)}): compare shapes, not heights."]


def _errors_note(whole: pl.DataFrame, drawn: bool) -> str:
    """What the errors of this run's table hold."""
    if not has_blocks(whole):
        return (
            "Standard errors take evaluation windows as independent; neighbouring windows are alike, so these errors "
            "are too small. Run `selector-audit analyze MODEL differences` again for errors over blocks of windows."
        )
    calibration = (
        "and, at the rates at which they were measured, between disjoint draws of the calibration text"
        if drawn
        else "but not over draws of the calibration text, which were not measured"
    )
    return f"Errors are over {units_in_words(whole, numbers=True)} and over random's seeds, {calibration}."


def _differences(picked: sources.Source) -> pl.DataFrame:
    whole = picked.table("differences")
    rate = selection.rate(whole["rate"], "difference_rate", place=picked.bar)
    drawn = picked.optional("draw_sweep")
    lerf, gaps = (curve_chart.over_seeds(whole, kind, rate, drawn) for kind in ("lerf", "gap"))
    if lerf.height:
        sentence = findings.differences(sum(map(curve_chart.apart, lerf.iter_rows(named=True))), lerf.height, rate)
        tools.show(curve_chart.pairs(lerf, rate), "differences", finding=sentence)
    destroyed = int(lerf["saturated"].sum())
    beyond = f" Of {destroyed} pairs both masks destroy the model: these are not compared." if destroyed else ""
    st.caption(
        f"Told apart: p at most {curve_chart.LEVEL:g} after Holm.{beyond} {_errors_note(whole, drawn is not None)}"
    )
    names = {
        "selector_a": "Selector", "selector_b": "minus", "difference": "Nats per token", "stderr": "Error",
        "low": "95% from", "high": "to", "p_holm": "p, Holm",
    }  # fmt: skip
    left, right = st.columns(2)
    with left:
        st.caption("LeRF: one selector's mask minus another's")
        st.dataframe(curve_chart.difference_table(lerf).rename(names), hide_index=True)
    with right:
        st.caption("Log gap: MoRF minus LeRF of one selector")
        st.dataframe(curve_chart.difference_table(gaps).drop("selector_b").rename(names, strict=False), hide_index=True)
    return pl.concat([lerf.with_columns(kind=pl.lit("lerf")), gaps.with_columns(kind=pl.lit("gap"))]).with_columns(
        rate=pl.lit(rate)
    )


def _measures(picked: sources.Source, points: pl.DataFrame, orders: Sequence[str]) -> pl.DataFrame:
    """What `sweep --measures` measured at the selectors, orders and rates of `points`."""
    whole = picked.table("sweep_measures")
    names = sorted(set(whole["measure"]))
    name = selection.switch("Measure", names, "curve_measure", default=names[0])
    of_measure = whole.filter(pl.col("measure") == name)
    shown = of_measure.join(points, how="semi", on=("selector", "order", "rate"))
    unit = str(of_measure["unit"][0])
    # Of several seeds the mean; the error is then their standard deviation.
    spread = pl.when(pl.len() > 1).then(pl.col("value").std()).otherwise(pl.col("stderr").first())
    bar = series.spread_or_interval(spread)
    means = shown.group_by("order", "selector", "rate", maintain_order=True).agg(
        pl.col("value").mean(), bar.alias("error"), pl.col("rows_removed").first()
    )
    for order, column in zip(orders, st.columns(len(orders)), strict=True):
        heading, _ = curve_chart.ORDER_HEADINGS[order]
        with column:
            figure = lines.lines(
                means.filter(order=order), lines.Axis("rate", "rows removed", "share"),
                lines.Axis("value", f"{name}, {unit}"), heading=heading, error="error",
                hover=lambda row: f"removed {formats.rate(row['rate'])} = {row['rows_removed']:,} rows<br>"
                f"{row['value']:.4f}" + ("" if row["error"] is None else f" ± {row['error']:.4f}"),
            )  # fmt: skip
            tools.show(figure, f"measure-{name}-{order}")
    return shown


def _parts(picked: sources.Source) -> pl.DataFrame:
    """The parts of one mask (`analyze MODEL parts`)."""
    table = picked.table("parts")
    with st.container(horizontal=True, gap="medium"):
        names = palette.in_order(table["selector"])
        name = selection.choose("Selector", names, "parts_selector", title=palette.title)
        orders = table["order"].unique(maintain_order=True).to_list()
        order = selection.switch(
            "Order", orders, "parts_order", default=orders[0], title=series.ORDER_TITLES.__getitem__
        )
        rates: list[Any] = sorted(set(table["rate"]))
        rate = selection.switch("Rows removed", rates, "parts_rate", default=rates[0], title=formats.rate)
    shown = table.filter(selector=name, order=order, rate=rate)
    for part, column in zip(("projection", "block"), st.columns(2, gap="medium"), strict=True):
        lines = shown.filter(part=part)
        with column:
            if lines["restored"].null_count() == lines.height:
                st.info(f"This mask does no harm, so that no {part} can do it.")
                continue
            tools.show(parts_chart.restored(lines), f"parts-{part}", finding=parts_chart.finding(lines))
    return shown
