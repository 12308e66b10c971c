"""Curves: perplexity against removed rows, LeRF and MoRF, measured and published."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import streamlit as st

from dashboard.charts import curves as curve_chart, formats, multiples, palette, series
from dashboard.pages.curves import differences
from dashboard.show import layout, selection, tools
from dashboard.state import offers, results, sources

NOTHING = "Nothing"
HOW_TO_READ = (
    "Each curve removes more and more rows by one selector's ranking. A ranking that finds what matters stays "
    "low under LeRF (unimportant rows go first) and shoots up under MoRF (important rows go first)."
)


@dataclass(frozen=True)
class Drawn:
    """One model's curves from one source, ready to be drawn or laid over others."""

    name: str
    source: str
    model: str
    curves: results.Curves
    points: pl.DataFrame


def render() -> None:
    """The page."""
    layout.heading("Curves", HOW_TO_READ)
    picked = sources.pick((results.SWEEP,))
    if picked is None:
        return
    curves = results.read_paper() if picked.run is None else results.read_run(picked.run)
    offered = offers.offers(picked.kind, curves, picked.run)
    shown = f"{picked.kind}: {picked.model}"
    with picked.beside:
        overlay_name = selection.choose(
            "Lay over", [NOTHING, *(name for name in offered if name != shown)], "overlay",
            help_text="Thin dotted lines, open symbols, the same axes.",
        )  # fmt: skip
    drawn, overlay, orders, relative = _choose_points(picked.kind, curves, picked.model, offered.get(overlay_name))
    pinned = _pinned(offered)
    if drawn.points.is_empty():
        st.info("Nothing is chosen: choose at least one selector and a range of rates that holds a measured point.")
        return
    if relative:
        _say_what_cannot_be_divided(drawn, overlay, pinned)
    tabs = st.tabs(["Curves", "Gap", "Values", "Models", "Differences"], key="view", bind="query-params")
    values = series.download_values(drawn.points, drawn.model, drawn.source)
    notes = _notes(drawn, overlay)
    provenance = [curves.provenance, *([overlay.curves.provenance] if overlay else [])]
    if tabs[0].open:
        with tabs[0]:
            _curves_tab(drawn, overlay, orders, relative, pinned)
    elif tabs[1].open:
        with tabs[1]:
            _gap_tab(drawn)
    elif tabs[2].open:
        with tabs[2]:
            _values_tab(drawn, overlay)
    elif tabs[3].open:
        with tabs[3]:
            beside = offers.beside(picked.kind, offered)
            values = _models_tab(beside, drawn, orders, relative, pinned)
            notes = ["Models differ in size, text and vocabulary: compare shapes, not heights."]
            provenance = [offer.curves.provenance for offer in beside]
    elif tabs[4].open:
        with tabs[4], layout.told():
            values = differences.render(picked)
            notes, provenance = list(differences.NOTES), picked.provenance
    name = f"curves-{tools.file_name(drawn.model)}"
    tools.end(values, name, *notes, *dict.fromkeys(provenance))


def _pinned(offered: dict[str, offers.Offer]) -> curve_chart.Pinned | None:
    """The curve that stays whatever else is chosen."""
    curves = offers.pins(offered)
    name = selection.choose(
        "Pin", [NOTHING, *curves], "pin",
        help_text="One curve of any model or run as a broad band behind the others; it stays when you choose others.",
    )  # fmt: skip
    if name == NOTHING:
        return None
    offer, selector = curves[name]
    found = series.points(offer.curves.frame, offer.model, [selector], results.ORDERS, (0.0, 1.0))
    return curve_chart.Pinned(name, found, series.unmasked_nll(offer.curves.frame, offer.model))


def _choose_points(
    source: str, curves: results.Curves, model: str, other: offers.Offer | None
) -> tuple[Drawn, Drawn | None, list[str], bool]:
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
    drawn = Drawn(model, source, model, curves, series.points(frame, model, selectors, orders, rates))
    if other is None:
        return drawn, None, orders, relative
    points = series.points(other.curves.frame, other.model, selectors, orders, rates)
    return drawn, Drawn(other.model, other.name, other.model, other.curves, points), orders, relative


def _say_what_cannot_be_divided(drawn: Drawn, overlay: Drawn | None, pinned: curve_chart.Pinned | None) -> None:
    baselines = {one.name: series.unmasked_nll(one.curves.frame, one.model) for one in (drawn, overlay) if one}
    if pinned is not None:
        baselines[pinned.name] = pinned.baseline
    _say_without_baseline(baselines)


def _say_without_baseline(baselines: dict[str, float | None]) -> None:
    missing = [name for name, baseline in baselines.items() if baseline is None]
    if missing:
        st.info(
            f"Not drawn: {layout.plain(', '.join(missing))}. The unmasked model was not measured there, so there is "
            "nothing to divide by; choose the scale Perplexity, or run the sweep again with 0 among its `--rates`."
        )


def _curves_tab(
    drawn: Drawn, overlay: Drawn | None, orders: list[str], relative: bool, pinned: curve_chart.Pinned | None
) -> None:
    for order, column in zip(orders, st.columns(len(orders)), strict=True):
        figure = curve_chart.curves(
            drawn.points, order, relative=relative, baseline=series.unmasked_nll(drawn.curves.frame, drawn.model),
            overlay=overlay.points if overlay else None,
            overlay_baseline=series.unmasked_nll(overlay.curves.frame, overlay.model) if overlay else None,
            overlay_name=overlay.source if overlay else "", pinned=pinned,
        )  # fmt: skip
        with column:
            tools.show(figure, f"{drawn.model}-{order}", _alt(drawn, order))


def _gap_tab(drawn: Drawn) -> None:
    gaps = series.gaps(drawn.points)
    if gaps.is_empty():
        st.info("The gap needs both orders: choose “Both” and at least one selector measured in both.")
        return
    tools.show(
        curve_chart.gap(gaps),
        f"{drawn.model}-gap",
        f"Log gap between MoRF and LeRF for {drawn.model} against removed rows, one line per selector.",
    )
    st.dataframe(series.gap_table(gaps), hide_index=True, height=320)


def _values_tab(drawn: Drawn, overlay: Drawn | None) -> None:
    table = series.value_table(drawn.points)
    st.dataframe(table, hide_index=True, height=min(38 + 35 * len(table), 720))
    if overlay:
        st.caption(layout.plain(overlay.source))
        other = series.value_table(overlay.points)
        st.dataframe(other, hide_index=True, height=min(38 + 35 * len(other), 720))


def _models_tab(
    beside: list[offers.Offer], drawn: Drawn, orders: list[str], relative: bool, pinned: curve_chart.Pinned | None
) -> pl.DataFrame:
    """The same selectors, orders and rates for every model; returns all values that are drawn."""
    selectors = drawn.points["selector"].unique().to_list()
    low, high = drawn.points["rate"].min(), drawn.points["rate"].max()
    panels, values = [], []
    for offer in beside:
        frame = offer.curves.frame
        found = series.points(frame, offer.model, selectors, orders, (low, high))  # type: ignore[arg-type]
        if found.height:
            name = offer.name if len({other.kind for other in beside}) > 1 else offer.model
            panels.append(multiples.Panel(name, found, series.unmasked_nll(frame, offer.model)))
            values.append(series.download_values(found, offer.model, offer.name))
    if relative:
        _say_without_baseline({panel.name: panel.baseline for panel in panels})
    names = ", ".join(panel.name for panel in panels)
    for order, column in zip(orders, st.columns(len(orders)), strict=True):
        figure = multiples.multiples(
            panels, order, columns=1 if len(orders) > 1 else 2, relative=relative, pinned=pinned
        )
        with column:
            tools.show(
                figure,
                f"models-{order}",
                f"Perplexity under {series.ORDER_TITLES[order]} against removed rows, a panel per model: {names}.",
            )
    return pl.concat(values)


def _alt(drawn: Drawn, order: str) -> str:
    part = drawn.points.filter(pl.col("order") == order)
    titles = ", ".join(palette.title(name) for name in palette.in_order(part["selector"].unique().to_list()))
    kind = "Published" if drawn.curves.published else "Measured"
    return f"{kind} perplexity of {drawn.model} under {series.ORDER_TITLES[order]} against removed rows: {titles}."


def _notes(drawn: Drawn, overlay: Drawn | None) -> list[str]:
    shown = [drawn.points] + ([overlay.points] if overlay else [])
    notes = []
    broken = sum(frame.filter(pl.col("nll").is_null() | ~pl.col("nll").is_finite()).height for frame in shown)
    if broken:
        notes.append(f"{broken} value(s) are not finite: arrows at the upper edge, ∞ or – in the tables.")
    if any(frame["plateau"].any() for frame in shown):
        notes.append("Ringed, * in the table: published cells at a numerical ceiling; only their order counts.")
    if drawn.points["seeds"].max() not in (None, 1):
        notes.append(
            "Random is the mean NLL of its seeds with their standard deviation; other error bars are the standard "
            "error over evaluation windows."
        )
    elif drawn.points["error"].null_count() < drawn.points.height:
        notes.append("Error bars: standard error over evaluation windows.")
    if overlay and overlay.model != drawn.model:
        notes.append(f"Two models are drawn ({drawn.model}, {overlay.model}): compare shapes, not heights.")
    return notes
