"""One cell of the grid: in numbers, every set of prompts before and after, utility, and where to go on with it; and
whether it is these rows, beside random masks, draws that were searched like the edit, and masks of other pairs."""

import json
from typing import Literal

import polars as pl
import streamlit as st

from dashboard.charts import formats, mask_parts as parts, refusal_rates, refusal_values as refusals
from dashboard.charts.findings import refusal_findings as findings
from dashboard.chat import edits
from dashboard.pages.refusal import reply_list as replies
from dashboard.show import layout, menu, tools
from dashboard.state import sources
from engine.records.manifest import read_manifest


def detail(source: sources.Source, cells: pl.DataFrame, points: pl.DataFrame | None, cell: refusals.Row) -> None:
    point = refusals.point_of(points, cell)
    before = refusals.unedited(cells, cell["selector"], cell["domain"])
    layout.section(layout.plain(refusals.cell_title(cell)))
    badges = {
        ":blue-badge[operating point]": point is not None,
        ":orange-badge[rescue: chosen under a relaxed limit of harmless prompts]": cell["rescue"],
        ":red-badge[not feasible]": not cell["feasible"],
    }
    if any(badges.values()):
        st.markdown(" ".join(badge for badge, applies in badges.items() if applies))
    _numbers(cell, before, point, source.optional("utility"))
    with st.container(horizontal=True, vertical_alignment="center"):
        _try_it(source, cell)
        if source.has(replies.STEM):
            wanted = {"section": "Replies", "reply_selector": cell["selector"], "reply_domain": cell["domain"]}
            st.button(
                "Its replies", icon=":material/forum:", type="tertiary", on_click=st.session_state.update,
                args=(wanted,),
            )  # fmt: skip
    transfer = source.optional("transfer")
    changes = refusals.rate_changes(cell, before, point, transfer, published=source.published)
    figure, told = refusal_rates.changes(changes), findings.changes(changes)
    tools.show(figure, "before-and-after", finding=told)
    if transfer is None and not source.published:
        layout.footnote("Other prompt sets are measured by `selector-audit refusal evaluate`.")
        source.offer("transfer")
    if notes := refusals.verdict_notes(transfer, cell):
        with st.expander("In numbers: prompts that change sides, and the judge's own errors"):
            for line in notes:
                st.text(line)
    if cut_off := refusals.cut_off(source.optional("refusal_sweep"), transfer, cell):
        layout.footnote(cut_off)


def _numbers(
    cell: refusals.Row, before: refusals.Row | None, point: refusals.Row | None, utility: pl.DataFrame | None
) -> None:
    """Of held-out prompts where they were asked."""
    held = point if point and point.get("heldout") and point.get("edited_malign") is not None else None
    with st.container(horizontal=True, key="refusal-numbers"):
        for kind, name in (("malign", "Risk prompts refused"), ("benign", "Harmless prompts refused")):
            old = held[f"unedited_{kind}"] if held else before[kind] if before else None
            now = refusals.rates(held, f"edited_{kind}") if held else refusals.rates(cell, kind)
            change = None if old is None or now[0] is None else 100 * (now[0] - old)
            better: Literal["normal", "inverse"] = "normal" if kind == "malign" else "inverse"
            asked = f"{held['pairs'] or 'some'} held-out" if held else cell[f"{kind}_n"] or "an unknown number of"
            st.metric(
                name + ", held out" * bool(held), refusals.percent(now[0]),
                delta=None if change is None else f"{change:+.1f} points",
                delta_color="off" if change == 0 else better, delta_arrow="off" if change == 0 else "auto",
                help=f"{refusals.percent(*now)} of {asked} prompts, Wilson's 95% interval",
            )  # fmt: skip
        unedited = before["nll"] if before else None
        arrow = f"{formats.perplexity(unedited)} → " if unedited is not None else ""
        st.metric("Perplexity", f"{arrow}{formats.perplexity(cell['nll'])}")
        if cell["rows_removed"] is not None:
            st.metric("Rows removed", formats.count(cell["rows_removed"]), help=f"{cell['rows_removed']:,} rows")
        if utility is not None:
            for row in refusals.of_cell(utility, cell).iter_rows(named=True):
                error = f" ± {100 * row['stderr']:.1f} (paired standard error)" if row["stderr"] is not None else ""
                sides = f" {row['before']:.1%} before, {row['after']:.1%} after." if row["before"] is not None else ""
                points = f"{100 * row['difference']:+.1f} points".replace("-", "−")
                about = layout.plain(f"{row['metric']}, edited minus unedited{error}.{sides}")
                st.metric(layout.plain(row["task"]), points, help=about)


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


def specificity(source: sources.Source, point: refusals.Row | None) -> None:
    if point is None:
        layout.footnote("Controls are measured at operating points only; choose one to see its random masks.")
        return
    _draws(source, point)
    _controls(source, point)
    halves = _lines(source, "mask_stability", point)
    if not halves.is_empty():
        names = ("jaccard", "jaccard_full", "expected_layers", "expected_random")
        between, whole, layers, chance = halves.select(pl.col(names).mean()).row(0)
        st.text(
            f"From other pairs: the masks of two halves of the calibration pairs share {between:.1%} of their rows "
            f"(Jaccard, mean of {halves.height} splits), each shares {whole:.1%} with the mask of all pairs. "
            f"Random rows at the same depths share {layers:.1%}, random rows anywhere {chance:.1%}."
        )
    lines = _lines(source, "refusal_parts", point)
    if lines.is_empty() or (lines := parts.of_edit(lines))["restored"].null_count():
        return
    for kind, column in zip(("projection", "block"), st.columns(2, gap="medium"), strict=True):
        shown = lines.filter(part=kind)
        with column:
            figure = parts.restored(shown, "margin's gain")
            tools.show(figure, f"refusal-parts-{kind}", finding=parts.finding_of_edit(shown))


def _lines(source: sources.Source, stem: str, point: refusals.Row) -> pl.DataFrame:
    table = source.optional(stem)
    return pl.DataFrame() if table is None else refusals.of_cell(table, point)


def _draws(source: sources.Source, point: refusals.Row) -> None:
    line, draws = _lines(source, "specificity", point), source.optional("refusal_draws")
    if line.is_empty() or draws is None:
        if not source.published:
            layout.footnote(
                "Whether random rows do as much once they are searched like the edit was not measured for this point; "
                "`selector-audit refusal draws` does."
            )
            if not source.has("specificity"):
                source.offer("specificity")
        return
    row = line.row(0, named=True)
    own = draws.filter(selector=row["selector"], domain=row["domain"])
    tools.show(refusal_rates.among_draws(row, own), "draws", finding=findings.among_draws(row))
    st.text(refusal_rates.told(row))
    if without := row["draws_without_point"]:
        layout.footnote(
            f"{without} of {row['draws']} draws found no operating point and count with the unedited model's rate."
        )


def _controls(source: sources.Source, point: refusals.Row) -> None:
    seeds = _lines(source, "refusal_controls", point)
    known = seeds.height or point.get("control_malign") is not None
    if not known or point.get("edited_malign") is None:
        layout.footnote(
            "The paper printed no control for this point."
            if source.published
            else "No control was measured for this point; run `selector-audit refusal control`."
        )
        if not source.has("refusal_controls"):
            source.offer("refusal_controls")
        return
    tools.show(
        refusal_rates.controls(point, seeds if seeds.height else None), "controls", finding=findings.random_masks(point)
    )
    if point.get("gain") is not None:
        count = seeds.filter(control="layer_matched").height if seeds.height else 0
        st.text(
            f"The paper's figure: gain over the mean of {count or 'the'} random masks with as many rows in every "
            f"layer: {refusals.percent(point['gain'])}. It is no test: the edit is the best of its grid, these masks "
            "were not searched."
        )
