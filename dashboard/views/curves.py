"""Curves: perplexity against removed rows, LeRF and MoRF, measured and published."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import streamlit as st

from dashboard import charts, formats, layout, palette, results, selection, series, shipped
from engine.errors import InputError

SHIPPED, MINE, PAPER = "Shipped model", "My results", "Paper"
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
    with st.container(border=True):
        first, second, third = st.columns(3)
        with first:
            source = selection.choose("Results", (SHIPPED, MINE, PAPER), "source", default=_first_source())
        try:
            curves = _read(source, first)
        except InputError as error:
            layout.problem(error)
            return
        with second:
            model = selection.choose("Model", curves.models, "model")
        with third:
            overlays = _overlays(source, curves, model)
            overlay_name = selection.choose(
                "Lay over",
                list(overlays),
                "overlay",
                help_text="Thin dotted lines, open symbols, the same axes.",
            )
        drawn, overlay, orders, relative = _choose_points(
            source, curves, model, overlays[overlay_name], overlay_name
        )
    if drawn.points.is_empty():
        st.info(
            "Nothing is chosen: choose at least one selector and a range of rates that holds a measured point."
        )
        return
    tabs = st.tabs(["Curves", "Gap", "Values"], key="view", bind="query-params")
    for tab, show in zip(tabs, (_curves_tab, _gap_tab, _values_tab), strict=True):
        if tab.open:
            with tab:
                show(drawn, overlay, orders, relative)
    sources = [curves.provenance, *([overlay.curves.provenance] if overlay else [])]
    layout.footnote(*_notes(drawn, overlay), *dict.fromkeys(sources))


def _first_source() -> str:
    if results.STORE_VARIABLE in os.environ:
        return MINE
    return SHIPPED if (shipped.demo_results_dir() / results.SWEEP).is_file() else PAPER


def _read(source: str, column: st.delta_generator.DeltaGenerator) -> results.Curves:
    if source == PAPER:
        return results.read_paper()
    if source == SHIPPED:
        return results.read_run(shipped.demo_results_dir())
    with column:
        folder = Path(
            selection.text(
                "Folder", "folder", default=str(results.store_results_dir()),
                help_text="A folder that a command wrote with --out, or one that holds such folders.",
            )
        ).expanduser()  # fmt: skip
        runs = {str(run.relative_to(folder)): run for run in results.find_runs(folder)}
        run = selection.choose("Run", list(runs), "run") if len(runs) > 1 else next(iter(runs))
    return results.read_run(runs[run])


def _overlays(source: str, curves: results.Curves, model: str) -> dict[str, results.Curves | None]:
    """What can be laid over, by name. A source that cannot be read is not offered here."""
    offered: dict[str, results.Curves | None] = {NOTHING: None}
    readable = {source: curves}
    for name, read in (
        (PAPER, results.read_paper),
        (SHIPPED, lambda: results.read_run(shipped.demo_results_dir())),
    ):
        if name != source:
            try:
                readable[name] = read()
            except InputError:
                continue
    for name, found in readable.items():
        for other in found.models:
            if (name, other) != (source, model):
                offered[f"{name}: {other}"] = found
    return offered


def _choose_points(
    source: str, curves: results.Curves, model: str, other: results.Curves | None, other_name: str
) -> tuple[Drawn, Drawn | None, list[str], bool]:
    """The remaining controls, and the points that they leave."""
    frame = curves.frame.filter(pl.col("model") == model)
    available = palette.in_order(frame["selector"].unique().to_list())
    selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    left, middle, right = st.columns([1, 1, 1.4])
    with left:
        order = selection.switch("Order", ("Both", "LeRF", "MoRF"), "order", default="Both")
    with middle:
        scale = selection.switch(
            "Scale", ("Perplexity", "÷ unmasked"), "scale", default="Perplexity",
            help_text="Divided by the unmasked model's perplexity, models of different quality can be compared.",
        )  # fmt: skip
    with right:
        rates = selection.rate_range("Rows removed", sorted(set(frame["rate"])), "rates", title=formats.rate)
    orders = list(results.ORDERS) if order == "Both" else [order.lower()]
    orders = [name for name in orders if name in set(frame["order"])]
    relative = scale != "Perplexity"
    drawn = Drawn(model, source, model, curves, series.points(frame, model, selectors, orders, rates))
    if other is None:
        return drawn, None, orders, relative
    other_model = other_name.split(": ", 1)[1]
    overlay_points = series.points(other.frame, other_model, selectors, orders, rates)
    return drawn, Drawn(other_model, other_name, other_model, other, overlay_points), orders, relative


def _curves_tab(drawn: Drawn, overlay: Drawn | None, orders: list[str], relative: bool) -> None:
    image_format = st.session_state.get("figure", "SVG")
    for order, column in zip(orders, st.columns(len(orders)), strict=True):
        figure = charts.curves(
            drawn.points, order, relative=relative,
            baseline=series.unmasked_nll(drawn.curves.frame, drawn.model),
            overlay=overlay.points if overlay else None,
            overlay_baseline=series.unmasked_nll(overlay.curves.frame, overlay.model) if overlay else None,
            overlay_name=overlay.source if overlay else "",
        )  # fmt: skip
        column.plotly_chart(
            figure,
            config=layout.figure_config(f"{drawn.model}-{order}", image_format.lower()),
            alt=_alt(drawn, order),
        )
    _downloads(drawn)


def _gap_tab(drawn: Drawn, overlay: Drawn | None, orders: list[str], relative: bool) -> None:
    gaps = series.gaps(drawn.points)
    if gaps.is_empty():
        st.info("The gap needs both orders: choose “Both” and at least one selector measured in both.")
        return
    image_format = st.session_state.get("figure", "SVG")
    st.plotly_chart(
        charts.gap(gaps),
        config=layout.figure_config(f"{drawn.model}-gap", image_format.lower()),
        alt=f"Log gap between MoRF and LeRF for {drawn.model} against removed rows, one line per selector.",
    )
    st.dataframe(series.gap_table(gaps), hide_index=True, height=320)
    _downloads(drawn)


def _values_tab(drawn: Drawn, overlay: Drawn | None, orders: list[str], relative: bool) -> None:
    table = series.value_table(drawn.points)
    st.dataframe(table, hide_index=True, height=min(38 + 35 * len(table), 720))
    if overlay:
        st.caption(layout.plain(overlay.source))
        other = series.value_table(overlay.points)
        st.dataframe(other, hide_index=True, height=min(38 + 35 * len(other), 720))
    _downloads(drawn)


def _downloads(drawn: Drawn) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.download_button(
            "Download values (CSV)", series.download_csv(drawn.points, drawn.model, drawn.source),
            file_name=f"curves-{drawn.model.rsplit('/', 1)[-1]}.csv", mime="text/csv", on_click="ignore",
        )  # fmt: skip
        selection.switch(
            "Figure format", ("SVG", "PNG"), "figure", default="SVG",
            help_text="The camera in the corner of a figure saves it in this format.",
        )  # fmt: skip


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
        notes.append(
            "Ringed, * in the table: published cells at a numerical ceiling; only their order counts."
        )
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
