"""Judges on the replies of an evaluated edit: what `refusal evaluate MODEL --judges A,B` wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import formats, judges, palette
from dashboard.charts.sortable import Sortable, sortable
from dashboard.show import grid, layout, selection, tools
from dashboard.state import results
from engine.records.errors import InputError

STEM = "judge_pairs"
COMMAND = "selector-audit refusal evaluate MODEL --judges embedded,minos"
MAX_DRAWN = 13  # sets of replies in the figure, all replies together included
ALL = "all"


@dataclass(frozen=True)
class Evaluated:
    """One results folder with judge pairs."""

    frame: pl.DataFrame
    provenance: str


def find(folder: Path) -> list[Path]:
    """Results folders with judge pairs, `folder` itself or up to three levels below; `InputError` if there is none."""
    found = {path.parent for path in results.below(folder, f"{STEM}.parquet", COMMAND)}
    if not found:
        raise InputError(f"{folder} holds no edit that several judges read; run `{COMMAND}` first")
    return sorted(found)


def chosen(folder: Path) -> Evaluated:
    """The evaluation that is chosen of those in the folder. `InputError` as in `find`, and for a damaged table."""
    runs = {str(run.relative_to(folder)): run for run in find(folder)}
    name = next(iter(runs))
    if len(runs) > 1:
        name = selection.choose("Evaluation", list(runs), "evaluation")
    table = results.read_table(runs[name], STEM)
    return Evaluated(table.frame, table.provenance)


def section(found: Evaluated, place: DeltaGenerator) -> pl.DataFrame:
    """Kappa of every pair of judges as a figure, both rates in a table; returns the lines that are shown."""
    labelled = found.frame.with_columns(
        place=formats.texts(found.frame.to_dicts(), _place),
        pair=pl.col("judge_a") + " / " + pl.col("judge_b"),
    )
    pairs = labelled["pair"].unique(maintain_order=True).to_list()
    places = labelled["place"].unique(maintain_order=True).to_list()
    drawn = [*places[: MAX_DRAWN - 1], *places[-1:]] if len(places) > MAX_DRAWN else places
    figure = judges.kappas(labelled.filter(pl.col("place").is_in(drawn)), pairs)
    with place:
        tools.show(figure, "judge-pairs", _alt(labelled), key="judge-pairs", hero=True)
    left_out = len(places) - len(drawn)
    undefined = labelled["kappa"].is_null().sum()
    layout.footnote(
        "Kappa with the interval that Wilson's interval of the agreement gives, the agreement by chance as observed; "
        "replies count as independent.",
        f"{undefined} without a kappa: both judges give one and the same verdict there, or judged no reply both."
        if undefined
        else "",
        f"{left_out} more sets stand in the table." if left_out else "",
        "The other tables of this evaluation hold the rates of the first judge of all.",
    )
    grid.show(_table(labelled))
    return found.frame


def _place(row: dict[str, str | float | None]) -> str:
    if row["selector"] == ALL:
        return "all replies"
    edit = "before" if row["selector"] == "none" else palette.title(str(row["selector"]))
    kind = {"malign": "risk", "benign": "base"}.get(str(row["kind"]), row["kind"])
    domain = "" if row["domain"] == "none" else f"{row['domain']}, "
    return f"{edit}: {domain}{row['prompts']} {kind}"


def _table(frame: pl.DataFrame) -> Sortable:
    def told(value: str, form: str) -> pl.Series:
        return formats.texts(
            frame.to_dicts(),
            lambda row: (
                "–"
                if row[value] is None
                else f"{row[value]:{form}} ({row[f'{value}_low']:{form}} – {row[f'{value}_high']:{form}})"
            ),
        )

    table = frame.select(
        Replies="place",
        Judges="pair",
        Compared="replies",
        Unjudged="unjudged",
        First=told("rate_a", ".2f"),
        Second=told("rate_b", ".2f"),
        Same=told("agreement", ".1%"),
        Kappa=told("kappa", ".2f"),
    ).rename({"First": "Refused, first", "Second": "Refused, second", "Same": "Same verdict"})
    numbers = frame.select(
        pl.col("rate_a").alias("Refused, first"), pl.col("rate_b").alias("Refused, second"),
        pl.col("agreement").alias("Same verdict"), pl.col("kappa").alias("Kappa"),
    )  # fmt: skip
    return sortable(table if table["Unjudged"].sum() else table.drop("Unjudged"), numbers)


def _alt(frame: pl.DataFrame) -> str:
    told = [
        f"{row['pair']}: kappa {'undefined' if row['kappa'] is None else format(row['kappa'], '.2f')}"
        for row in frame.filter(selector=ALL).to_dicts()
    ]
    return f"Cohen's kappa of every pair of judges; over all replies {'; '.join(told)}."
