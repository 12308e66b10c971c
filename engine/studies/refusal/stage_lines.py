"""Lines that several stages say on the terminal."""

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from engine.run.refusal_plan import RefusalPlan
from engine.studies.base import Tables, TextTable
from engine.studies.refusal.inputs import RefusalInputs


def cut_off_lines(table: pl.DataFrame, *sides: tuple[str, str, str]) -> Iterator[str]:
    """How many replies behind the rates ended at the limit of tokens. sides: columns of a rate, its n, its cut-off."""
    sums = [table.filter(pl.col(rate).is_not_null()).select(pl.col(n, cut).sum()).row(0) for rate, n, cut in sides]
    replies, cut_off = (sum(column) for column in zip(*sums, strict=True))
    if cut_off:
        yield (
            f"{cut_off:,} of {replies:,} replies were cut off at the token limit or within their thinking part, and "
            "judged by what they say until then, if anything; --reply-tokens allows longer ones"
        )


def measured_again_lines(table: pl.DataFrame, plan: RefusalPlan) -> Iterator[str]:
    """How many cells were measured again with longer replies, since cut-off ones left a choice open."""
    if "reply_tokens_used" not in table.columns:
        return
    used = table["reply_tokens_used"].drop_nulls().to_list()
    longer = [tokens for tokens in used if tokens > plan.reply_tokens]
    if longer:
        yield (
            f"{len(longer):,} of {len(used):,} cells were measured again with up to {max(longer):,} tokens per reply, "
            f"since those cut off at {plan.reply_tokens:,} left open whether a cell is feasible or which one is chosen"
        )


def notes(point_notes: Iterable[tuple[tuple[str, str], str]]) -> Iterator[str]:
    """A line for each (selector, domain) of which there is something to say."""
    for (selector, domain), note in point_notes:
        if note:
            yield f"{selector} {domain}: {note}"


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
