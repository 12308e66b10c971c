"""One cell of the grid in numbers: every set of prompts before and after, utility, and where to go on with it."""

import json
from typing import Literal

import polars as pl
import streamlit as st

from dashboard.charts import formats, refusal_rates, refusal_values as refusals
from dashboard.charts.findings import refusal as findings
from dashboard.chat import edits
from dashboard.pages.refusal import reply_pairs
from dashboard.show import layout, menu, tools
from dashboard.state import sources
from engine.records.manifest import read_manifest


def detail(source: sources.Source, cells: pl.DataFrame, points: pl.DataFrame | None, cell: refusals.Row) -> None:
    point = refusals.point_of(points, cell)
    before = refusals.unedited(cells, cell["selector"], cell["domain"])
    layout.section(layout.plain(refusals.cell_title(cell)))
    _badges(cell, point)
    _numbers(cell, before, source.optional("utility"))
    with st.container(horizontal=True, vertical_alignment="center"):
        _try_it(source, cell)
        if source.has(reply_pairs.STEM):
            replies = {"section": "Replies", "reply_selector": cell["selector"], "reply_domain": cell["domain"]}
            st.button(
                "Its replies", icon=":material/forum:", type="tertiary", on_click=st.session_state.update,
                args=(replies,),
            )  # fmt: skip
    transfer = source.optional("transfer")
    changes = refusals.rate_changes(cell, before, point, transfer, published=source.published)
    figure, told = refusal_rates.changes(changes), findings.changes(changes)
    tools.show(figure, "before-and-after", finding=told)
    if transfer is None and not source.published:
        layout.footnote("Other prompt sets are measured by `selector-audit refusal evaluate`.")
        source.offer("transfer")
    for line in refusals.verdict_notes(transfer, cell):
        st.text(line)
    if cut_off := refusals.cut_off(source.optional("refusal_sweep"), transfer, cell):
        layout.footnote(cut_off)


def _badges(cell: refusals.Row, point: refusals.Row | None) -> None:
    badges = {
        ":blue-badge[operating point]": point is not None,
        ":orange-badge[rescue: chosen under a relaxed limit of harmless prompts]": cell["rescue"],
        ":red-badge[not feasible]": not cell["feasible"],
    }
    if any(badges.values()):
        st.markdown(" ".join(badge for badge, applies in badges.items() if applies))


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
            st.metric("Rows removed", formats.count(cell["rows_removed"]), help=f"{cell['rows_removed']:,} rows")
        if utility is not None:
            for row in refusals.of_cell(utility, cell).iter_rows(named=True):
                _utility(row)


def _utility(row: refusals.Row) -> None:
    error = f" ± {100 * row['stderr']:.1f} (paired standard error)" if row["stderr"] is not None else ""
    sides = f" {row['before']:.1%} before, {row['after']:.1%} after." if row["before"] is not None else ""
    change = f"{100 * row['difference']:+.1f} points".replace("-", "−")
    about = layout.plain(f"{row['metric']}, edited minus unedited{error}.{sides}")
    st.metric(layout.plain(row["task"]), change, help=about)


def _try_it(source: sources.Source, cell: refusals.Row) -> None:
    if source.run is None or cell["malign"] is None or cell["benign"] is None:
        return
    chosen = {name: cell[name] for name in ("selector", "domain", "lambda", "k")}
    if source.kind != sources.SHIPPED or cell["lambda"] not in edits.LAMBDAS or cell["k"] not in edits.KS:
        if not (source.run / edits.CONTRASTS).is_file():
            return
        model = read_manifest(source.folder).get("model") or {}
        chosen |= {"model": str(model.get("id", source.model)), "run": str(source.run)}
    parameters = {edits.HANDED: json.dumps(chosen, ensure_ascii=False)}
    menu.link("Try this edit live", "live", parameters, icon=":material/play_arrow:")
