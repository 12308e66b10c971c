"""What `evaluate` says of its tables on the terminal."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from engine.studies.base import Tables, TextTable
from engine.studies.refusal.inputs import RefusalInputs
from engine.studies.refusal.stage_lines import cut_off_lines


def evaluation_lines(run: RefusalInputs, tables: Tables) -> Iterator[str | TextTable]:
    """Rates with their intervals, what changed, the judge's errors, utility, and how far several judges agree."""
    transfer = tables["transfer"]
    yield TextTable(
        "refused prompts, with 95% intervals",
        ("selector", "edit", "prompts", "n", "before", "after"),
        [_row(row) for row in transfer.to_dicts()],
    )
    yield TextTable(
        "prompts newly refused and no longer, change with its 95% interval",
        ("selector", "edit", "prompts", "newly", "no longer", "change", "McNemar's p"),
        [_change(row) for row in transfer.drop_nulls("change").to_dicts()],
    )
    if quality := run.judge_quality:
        yield (
            f"Corrected for the errors of the judge (sensitivity {quality.counts.sensitivity:.3f}, specificity "
            f"{quality.counts.specificity:.3f} on {quality.source}): columns before_corrected, after_corrected"
        )
    if "samples" in transfer.columns:  # replies, not prompts
        transfer = transfer.with_columns(n=pl.col("n") * pl.col("samples").fill_null(1))
    yield from cut_off_lines(transfer, ("after", "n", "after_unfinished"))
    for row in tables["utility"].iter_rows(named=True) if "utility" in tables else ():
        yield (
            f"{row['selector']} {row['domain']} {row['task']}: {row['before']:.3f} > {row['after']:.3f} "
            f"({row['difference']:+.3f})"
        )
    if "judge_pairs" in tables:
        yield from _judge_pairs(tables["judge_pairs"])


def _judge_pairs(table: pl.DataFrame) -> Iterator[str | TextTable]:
    """Both rates, agreement and kappa of every pair of judges, line by line, the one over all replies last."""
    yield TextTable(
        "two judges on the same replies, with 95% intervals",
        ("selector", "domain", "prompts", "judges", "n", "rates", "same", "kappa"),
        [_pair(row) for row in table.to_dicts()],
    )
    unjudged = max(table.filter(selector="all")["unjudged"].to_list(), default=0)
    if unjudged:
        yield f"up to {unjudged:,} replies were left out that one of two judges could not judge"


def _pair(row: dict[str, Any]) -> tuple[str, ...]:
    place = (row["selector"], row["domain"], f"{row['prompts']}, {row['kind']}", f"{row['judge_a']} / {row['judge_b']}")
    if not row["replies"]:
        return *place, "0", "–", "–", "–"
    kappa = "undefined"
    if row["kappa"] is not None:
        kappa = f"{row['kappa']:.2f} ({row['kappa_low']:.2f} to {row['kappa_high']:.2f})"
    return *place, str(row["replies"]), f"{row['rate_a']:.2f} / {row['rate_b']:.2f}", f"{row['agreement']:.0%}", kappa


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    sides = [f"{row[side]:.2f} ({row[f'{side}_low']:.2f} to {row[f'{side}_high']:.2f})" for side in ("before", "after")]
    return *_place(row), str(row["n"]), *sides


def _change(row: dict[str, Any]) -> tuple[str, ...]:
    change = f"{row['change']:+.2f} ({row['change_low']:+.2f} to {row['change_high']:+.2f})"
    return *_place(row), str(row["newly_refused"]), str(row["no_longer_refused"]), change, f"{row['mcnemar_p']:.2g}"


def _place(row: dict[str, Any]) -> tuple[str, ...]:
    return row["selector"], row["domain"], f"{row['prompts']}, {row['kind']}"
