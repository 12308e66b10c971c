"""One cell of the grid in detail: its neighbours, every set of prompts before and after, controls, utility."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlencode

import polars as pl
import streamlit as st

from dashboard import charts, edits, formats, layout, live, palette, refusals, selection, sources, tools

CHART = "refusal-grid"


def detail(
    source: sources.Source, cells: pl.DataFrame, points: pl.DataFrame | None, cell: refusals.Row
) -> None:
    """Everything that is known of one cell, below the figure of all of them."""
    point = refusals.point_of(points, cell)
    before = refusals.unedited(cells, cell["selector"], cell["domain"])
    st.subheader(layout.plain(refusals.cell_title(cell)), anchor=False)
    _badges(cell, point)
    _numbers(cell, before, _optional(source, "utility"))
    left, right = st.columns(2)
    with left:
        _around(cells, cell)
    with right:
        transfer = _optional(source, "transfer")
        changes = refusals.rate_changes(cell, before, point, transfer, published=source.published)
        tools.show(charts.refusal_rates.changes(changes), "before-and-after", _changes_alt(changes))
        if transfer is None and not source.published:
            layout.footnote("Other prompt sets are measured by `selector-audit refusal evaluate`.")
    _controls(source, point)
    _try_it(source, cell)


def _badges(cell: refusals.Row, point: refusals.Row | None) -> None:
    badges = []
    if point is not None:
        badges.append(":blue-badge[operating point]")
    if cell["rescue"]:
        badges.append(":orange-badge[rescue: chosen under a relaxed benign limit]")
    if not cell["feasible"]:
        badges.append(":red-badge[not feasible]")
    if badges:
        st.markdown(" ".join(badges))


def _numbers(cell: refusals.Row, before: refusals.Row | None, utility: pl.DataFrame | None) -> None:
    with st.container(horizontal=True, key="refusal-numbers"):
        for kind, name in (("malign", "Risk prompts refused"), ("benign", "Harmless prompts refused")):
            old = before[kind] if before else None
            change = None if old is None else 100 * (cell[kind] - old)
            better: Literal["normal", "inverse"] = "normal" if kind == "malign" else "inverse"
            st.metric(
                name, f"{cell[kind]:.1%}", delta=None if change is None else f"{change:+.1f} points",
                delta_color="off" if change == 0 else better, delta_arrow="off" if change == 0 else "auto",
                help=f"{refusals.percent(cell[kind], cell[f'{kind}_low'], cell[f'{kind}_high'])} of "
                f"{cell[f'{kind}_n'] or 'an unknown number of'} prompts, Wilson's 95% interval",
            )  # fmt: skip
        unedited = before["nll"] if before else None
        arrow = f"{formats.perplexity(unedited)} → " if unedited is not None else ""
        st.metric("Perplexity", f"{arrow}{formats.perplexity(cell['nll'])}")
        if cell["rows_removed"] is not None:
            st.metric(
                "Rows removed", formats.count(cell["rows_removed"]), help=f"{cell['rows_removed']:,} rows"
            )
        if utility is not None:
            for row in refusals.of_cell(utility, cell).iter_rows(named=True):
                _utility(row)


def _utility(row: refusals.Row) -> None:
    error = f" ± {100 * row['stderr']:.1f} (paired standard error)" if row["stderr"] is not None else ""
    sides = f" {row['before']:.1%} before, {row['after']:.1%} after." if row["before"] is not None else ""
    st.metric(
        layout.plain(row["task"]), f"{100 * row['difference']:+.1f} points".replace("-", "−"),
        help=layout.plain(f"{row['metric']}, edited minus unedited{error}.{sides}"),
    )  # fmt: skip


def _optional(source: sources.Source, stem: str) -> pl.DataFrame | None:
    """A table that not every folder has; None, and a line where it is damaged."""
    found = None
    if source.has(stem):
        with layout.told():
            found = source.all_models(stem).filter(pl.col("model") == source.model)
    return found


def _around(cells: pl.DataFrame, cell: refusals.Row) -> None:
    grid = refusals.edited(cells).filter(selector=cell["selector"], domain=cell["domain"])
    if grid.height == 1:
        st.caption("No other cell of this selector and domain is known.")
        return
    values = (charts.refusal.MALIGN, charts.refusal.BENIGN, charts.refusal.PERPLEXITY)
    value = selection.switch("Value", values, "around", default=values[0])
    figure = charts.refusal.neighbourhood(grid, value, cell["id"])
    alt = (
        f"{value} over λ and k of {palette.title(cell['selector'])} on {cell['domain']}, {grid.height} cells; "
        f"framed: {refusals.strength(cell)}."
    )
    tools.show(figure, "neighbourhood", alt, key=CHART, clickable=True)


def _changes_alt(changes: list[refusals.RateChange]) -> str:
    told = [
        f"{one.prompts} ({'to refuse' if one.malign else 'to answer'}) {refusals.percent(one.before[0])} to "
        f"{refusals.percent(one.after[0])}"
        for one in changes
    ]
    return "Refused before and after the edit: " + "; ".join(told) + "."


def _controls(source: sources.Source, point: refusals.Row | None) -> None:
    if point is None:
        layout.footnote("Controls are measured at operating points only; choose one to see its random masks.")
        return
    table = _optional(source, "refusal_controls")
    seeds = refusals.of_cell(table, point) if table is not None else None
    known = (seeds is not None and seeds.height) or point.get("control_malign") is not None
    if not known or point.get("edited_malign") is None:
        layout.footnote(
            "The paper printed no control for this point." if source.published
            else "No control was measured for this point; run `selector-audit refusal control`."
        )  # fmt: skip
        return
    alt = (
        f"Malign refusal of the edit {refusals.percent(point['edited_malign'])}; random masks with the same rows per "
        f"layer {refusals.percent(point.get('control_malign'))} on average, at most "
        f"{refusals.percent(point.get('control_malign_max'))}."
    )
    tools.show(charts.refusal_rates.controls(point, seeds), "controls", alt)
    if point.get("gain") is not None:
        st.text(
            f"Gain over random masks with as many rows in every layer: "
            f"{refusals.percent(point['gain'], point.get('gain_low'), point.get('gain_high'))}. "
            + _reading(point)
        )  # fmt: skip


def _reading(point: refusals.Row) -> str:
    low = point.get("gain_low")
    if low is None:
        return "The paper prints no interval for it."
    if low > 0:
        return "The interval is above 0: these rows do what random ones do not."
    return "The interval reaches 0: random rows may do as much."


def _try_it(source: sources.Source, cell: refusals.Row) -> None:
    """A link to the live page with this cell's settings, for the shipped model."""
    measured = cell["lambda"] in edits.LAMBDAS and cell["k"] in edits.KS
    if source.kind != sources.SHIPPED or source.model != live.DEMO or not measured:
        return
    chosen = {
        "domain": str(cell["domain"]).capitalize(), "edit_selector": palette.title(cell["selector"]),
        "lambda": f"{cell['lambda']:g}", "k": formats.rate(cell["k"]),
    }  # fmt: skip
    st.link_button("Try this edit live", f"/live?{urlencode(chosen)}", icon=":material/play_arrow:")
