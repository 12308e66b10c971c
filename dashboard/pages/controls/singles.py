"""Single units on the page Controls: exact effects of single rows and neurons beside the validity of sets."""

from __future__ import annotations

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import formats, palette, singles
from dashboard.charts.sortable import sortable
from dashboard.pages.controls import more
from dashboard.show import grid, layout, selection, tools
from dashboard.state import sources
from engine.results.tables import command

_UNITS = {"row": "Rows", "neuron": "Neurons"}
Row = dict[str, Any]


def show(source: sources.Source) -> pl.DataFrame:
    """The part of the page; returns the rankings that are shown."""
    table = source.table("singles_selectors")
    kinds = [kind for kind in _UNITS if kind in set(table["unit_kind"])]
    with source.bar:
        kind = selection.switch("Unit", kinds, "single_unit", default=kinds[0], title=_UNITS.__getitem__)
        effects = selection.switch(
            "Effects", tuple(singles.RULERS), "single_effects", default="Signed",
            help_text="Signed: does a higher score mean that the removal hurts more? Absolute: that it changes more?",
        )  # fmt: skip
    chosen = table.filter(unit_kind=kind)
    _rulers(source, chosen, singles.RULERS[effects], kind)
    with layout.told():
        _sample(source.table("singles_units").filter(unit_kind=kind), kind)
    with layout.told():
        _numbers(chosen, source.table("singles_recall").filter(unit_kind=kind))
    with layout.told():
        _helping(source.table("singles").filter(unit_kind=kind), kind)
    return chosen


def _rulers(source: sources.Source, chosen: pl.DataFrame, ruler: str, kind: str) -> None:
    found = singles.marks(chosen, ruler)
    heading = singles.finding(found, kind)
    if found.is_empty():
        st.info("No rank correlation could be computed: the sample is too small, or every score is the same.")
        return
    measured = found.filter(pl.col("lerf_nll").is_finite())
    draw = singles.scatter if measured.height else singles.intervals
    said = ", ".join(
        f"{palette.title(row['selector'])} {row['single']:.2f}"
        + (f" and {row['lerf_nll']:.2f} nats" if row["lerf_nll"] is not None else "")
        for row in found.iter_rows(named=True)
    )
    alt = f"{heading}. Spearman of scores and {ruler} effects of single {singles.KINDS[kind]}"
    alt += f" against the NLL of LeRF masks at 30%: {said}." if measured.height else f": {said}."
    name = f"single-against-set-{kind}"
    with source.hero():
        tools.show(draw(found, heading, ruler, kind), name, alt, key="single-against-set", finding=heading, hero=True)
    if measured.is_empty():
        again = command("singles").replace("singles", "sweep singles")
        st.info(f"No sweep has measured the LeRF masks at 30% here; run `{again}` to see both rulers.")
    elif measured.height < found.height:
        st.caption(f"{found.height - measured.height} selector(s) have no measured mask at 30% and no mark.")
    st.caption(
        "Removing one row is another question than removing a third of them: single effects are small and may help, "
        "sets also take what rows stand in for each other. Bars are 95% intervals over the sampled units. The heading "
        "says that the rulers disagree where the intervals of their two best selectors do not touch."
    )


def _sample(units: pl.DataFrame, kind: str) -> None:
    """What the sample says of all units, in words."""
    row, name = units.row(0, named=True), singles.KINDS[kind]
    one = "a row" if kind == "row" else "a neuron"
    helps = f"{row['helps']:.0%}** of cases ({row['helps_low']:.0%} to {row['helps_high']:.0%})"
    larger = f"; at most {row['larger_high']:.2%} of all {name} have a larger one (95%)" if row["larger_high"] else ""
    st.markdown(
        f"**{row['units_sampled']:,} of {row['unit_count']:,} {name}** were removed one by one, each with the same "
        f"chance, on {row['effect_windows']} windows ({row['tokens']:,} tokens). Removing {one} **helps in {helps}, "
        f"and beyond its error in {row['helps_clear']:.1%}. The median effect is "
        f"{formats.rounded(row['median_effect'])} nats per token, the largest "
        f"{formats.rounded(row['largest_effect'])}{larger}. "
        + singles.noise(row["split_half_signed"], row["split_half_absolute"])
    )


def _numbers(chosen: pl.DataFrame, recall: pl.DataFrame) -> None:
    """Every ranking with its intervals, and how much of the top it finds."""
    tops = sorted(set(recall["top"]))
    by_ranking = {(row["selector"], row["seed"], row["top"]): row for row in recall.iter_rows(named=True)}
    order = palette.in_order(chosen["selector"].to_list())
    rows = sorted(chosen.iter_rows(named=True), key=lambda row: (order.index(row["selector"]), row["seed"] or 0))
    lines, numbers = [], []
    for row in rows:
        seed = "" if row["seed"] is None else f" (seed {row['seed']})"
        line = {
            "Selector": palette.title(row["selector"]) + seed,
            "Signed": _with_interval(row, "signed_spearman", "signed"),
            "Absolute": _with_interval(row, "absolute_spearman", "absolute"),
            "Sign agreement": _with_interval(row, "sign_agreement", "sign") + ("" if row["gives_signs"] else " *"),
        }
        number = {
            "Signed": row["signed_spearman"], "Absolute": row["absolute_spearman"],
            "Sign agreement": row["sign_agreement"],
        }  # fmt: skip
        for top in tops:
            found = by_ranking.get((row["selector"], row["seed"], top))
            at = f"top {formats.rate(top)}"
            line[f"{at}: found"] = "–" if found is None else f"{found['top_found']} of {found['top_sampled']}"
            line[f"{at}: missed at most"] = "–" if found is None else f"{found['top_missed_high']:.0%}"
            number[f"{at}: found"] = None if found is None else found["top_recall"]
            number[f"{at}: missed at most"] = None if found is None else found["top_missed_high"]
        nll = row["lerf_nll"]
        lines.append({**line, "LeRF at 30% (nats)": "–" if nll is None else f"{nll:.4f}"})
        numbers.append({**number, "LeRF at 30% (nats)": nll})
    texts = pl.DataFrame(lines, infer_schema_length=None)
    grid.show(
        sortable(texts, pl.DataFrame(numbers, infer_schema_length=None).cast(pl.Float64)),
        alt="Every ranking with its intervals",
    )  # fmt: skip
    st.caption(
        "Found: of the sampled units with the largest effects, those that the ranking has among as large a share of "
        "all units. Missed at most: upper 95% bound of the share that it misses of all units with effects so large. "
        "* gives no negative score, so it says of every unit that removing it hurts."
    )


def _with_interval(row: Row, column: str, name: str) -> str:
    value, low, high = row[column], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return "–"
    shown = f"{value:.2f}" if low is None else f"{value:.2f} ({low:.2f} to {high:.2f})"
    return shown.replace("-", "−")


def _helping(table: pl.DataFrame, kind: str) -> None:
    found = singles.parts(table)
    least, most = (found.sort("helps", maintain_order=True).row(place, named=True) for place in (0, -1))
    heading = f"Helps when removed: {least['helps']:.0%} to {most['helps']:.0%}"
    heading += f", most in {most['part']}" if most["helps"] > least["helps"] else ""
    said = ", ".join(f"{row['part']} {row['helps']:.0%}" for row in found.iter_rows(named=True))
    alt = f"Share of single {singles.KINDS[kind]} whose removal lowers the NLL: {said}."
    figure = singles.helping(found, heading)
    tools.show(figure, f"singles-helping-{kind}", alt, key="singles-helping", finding=heading)
    more.say_not_finite(table["effect"])
