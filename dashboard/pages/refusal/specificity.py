"""Is it these rows? The random masks of the paper, draws that were searched like the edit, masks of other pairs."""

import polars as pl
import streamlit as st

from dashboard.charts import parts, refusal_rates, refusal_values as refusals
from dashboard.charts.findings import refusal as findings
from dashboard.show import layout, tools
from dashboard.state import sources


def section(source: sources.Source, point: refusals.Row | None) -> None:
    if point is None:
        layout.footnote("Controls are measured at operating points only; choose one to see its random masks.")
        return
    _draws(source, point)
    _controls(source, point)
    _stability(source, point)
    _parts(source, point)


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


def _stability(source: sources.Source, point: refusals.Row) -> None:
    lines = _lines(source, "mask_stability", point)
    if lines.is_empty():
        return
    names = ("jaccard", "jaccard_full", "expected_layers", "expected_random")
    between, whole, layers, chance = lines.select(pl.col(names).mean()).row(0)
    st.text(
        f"From other pairs: the masks of two halves of the calibration pairs share {between:.1%} of their rows "
        f"(Jaccard, mean of {lines.height} splits), each shares {whole:.1%} with the mask of all pairs. "
        f"Random rows at the same depths share {layers:.1%}, random rows anywhere {chance:.1%}."
    )


def _parts(source: sources.Source, point: refusals.Row) -> None:
    lines = _lines(source, "refusal_parts", point)
    if lines.is_empty() or (lines := parts.of_edit(lines))["restored"].null_count():
        return
    for kind, column in zip(("projection", "block"), st.columns(2, gap="medium"), strict=True):
        shown = lines.filter(part=kind)
        with column:
            figure = parts.restored(shown, "margin's gain")
            tools.show(figure, f"refusal-parts-{kind}", finding=parts.finding_of_edit(shown))
