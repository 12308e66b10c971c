"""Single units: exact effects of single rows and neurons beside the validity of sets."""

from collections.abc import Callable
from operator import itemgetter

import polars as pl
import streamlit as st

from dashboard.charts import formats, palette, single_effects as singles
from dashboard.charts.sortable import Cell, Row, of_rows
from dashboard.show import layout, selection, shown_tables as tables
from dashboard.state.page_parts import Drawn, Part
from dashboard.state.sources import Source
from engine.results.tables import command

_UNITS = {"row": "Rows", "neuron": "Neurons"}


def show(source: Source) -> Drawn:
    """Two rulers of the rankings; folded, every ranking's numbers. Returns the rankings."""
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
        row = source.table("singles_units").filter(unit_kind=kind).row(0, named=True)
        name, one = singles.KINDS[kind], "a row" if kind == "row" else "a neuron"
        helps = f"{row['helps']:.0%}** of cases ({row['helps_low']:.0%} to {row['helps_high']:.0%})"
        larger = (
            f"; at most {row['larger_high']:.2%} of all {name} have a larger one (95%)" if row["larger_high"] else ""
        )
        st.markdown(
            f"**{row['units_sampled']:,} of {row['unit_count']:,} {name}** were removed one by one, each with the same "
            f"chance, on {row['effect_windows']} windows ({row['tokens']:,} tokens). Removing {one} **helps in "
            f"{helps}, and beyond its error in {row['helps_clear']:.1%}. The median effect is "
            f"{formats.rounded(row['median_effect'])} nats per token, the largest "
            f"{formats.rounded(row['largest_effect'])}{larger}."
        )
    return Drawn(chosen, lambda: _numbers(chosen, source.table("singles_recall").filter(unit_kind=kind)))


def _rulers(source: Source, chosen: pl.DataFrame, ruler: str, kind: str) -> None:
    marks = singles.marks(chosen, ruler)
    heading = singles.finding(marks, kind)
    if marks.is_empty():
        st.info("No rank correlation could be computed: the sample is too small, or every score is the same.")
        return
    measured = marks.filter(pl.col("lerf_nll").is_finite())
    draw = singles.scatter if measured.height else singles.intervals
    figure = draw(marks, heading, ruler, kind)
    source.show(figure, f"single-against-set-{kind}", key="single-against-set", finding=heading)
    if measured.is_empty():
        again = command("singles").replace("singles", "sweep singles")
        st.info(f"No sweep has measured the LeRF masks at 30% here; run `{again}` to see both rulers.")
    elif measured.height < marks.height:
        st.caption(f"{marks.height - measured.height} selector(s) have no measured mask at 30% and no mark.")


def _numbers(chosen: pl.DataFrame, recall: pl.DataFrame) -> None:
    """Every ranking with its intervals, and how much of the top it finds."""
    by_ranking = {(row["selector"], row["seed"], row["top"]): row for row in recall.iter_rows(named=True)}
    rows = palette.sorted_by_selector(chosen.sort("seed", nulls_last=False)).iter_rows(named=True)

    def ranking(row: Row) -> str:
        return palette.title(row["selector"]) + ("" if row["seed"] is None else f" (seed {row['seed']})")

    def correlation(column: str, name: str) -> tuple[Cell, Cell]:
        return lambda row: _with_interval(row, column, name), itemgetter(column)

    def of_top(top: float, value: str, text: Callable[[Row], str]) -> tuple[Cell, Cell]:
        def found(row: Row) -> Row | None:
            return by_ranking.get((row["selector"], row["seed"], top))

        return (
            lambda row: "–" if (line := found(row)) is None else text(line),
            lambda row: None if (line := found(row)) is None else line[value],
        )

    columns: dict[str, Cell | tuple[Cell, Cell]] = {
        "Selector": ranking, "Signed": correlation("signed_spearman", "signed"),
        "Absolute": correlation("absolute_spearman", "absolute"),
        "Sign agreement": correlation("sign_agreement", "sign"),
    }  # fmt: skip
    for top in sorted(set(recall["top"])):
        at = f"top {formats.rate(top)}"
        columns[f"{at}: found"] = of_top(
            top, "top_recall", lambda line: f"{line['top_found']} of {line['top_sampled']}"
        )
        columns[f"{at}: missed at most"] = of_top(top, "top_missed_high", lambda line: f"{line['top_missed_high']:.0%}")
    columns["LeRF at 30% (nats)"] = (
        lambda row: "–" if row["lerf_nll"] is None else f"{row['lerf_nll']:.4f}", itemgetter("lerf_nll")
    )  # fmt: skip
    tables.show(of_rows(rows, columns), alt="Every ranking with its intervals")
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
    return shown.replace("-", "−") + ("" if name != "sign" or row["gives_signs"] else " *")


PART = Part(
    show, ("singles_selectors",),
    "Removing one row is another question than removing a third of them: single effects are small and may help, sets "
    "also take what rows stand in for each other. Bars are 95% intervals over the sampled units. The heading says that "
    "the rulers disagree where the intervals of their two best selectors do not touch.",
)  # fmt: skip
