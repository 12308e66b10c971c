"""`refusal evaluate`: held-out prompts and utility, before and after every edit."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import polars as pl

from engine.commands import common
from engine.commands.refusal import options
from engine.records.errors import InputError
from engine.run.field_types import parts

if TYPE_CHECKING:
    from engine.data.prompt_sets import PromptSet
    from engine.judges.base import Judge
    from engine.measures.harness_tasks import HarnessTask


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="does it hold on other prompts, what does it cost, do judges agree? writes transfer, utility, judge_pairs",
        description="Refusal on held-out pairs and on public prompt sets before and after every operating point, with "
        "Wilson's intervals, McNemar's test of the change, and rates corrected for the judge's errors where they are "
        "known; with --reply-samples and --follow-up sampled replies and second turns as well; and utility through "
        "lm-evaluation-harness where it is asked for.",
    )
    options.add_options(parser, run)
    add_sets(parser)


def add_sets(parser: argparse.ArgumentParser) -> None:
    """Which prompts and tasks are asked besides the held-out pairs."""
    parser.add_argument(
        "--sets",
        metavar="SET,…",
        help="further prompts: sorrybench, orbench, xstest from the Hugging Face hub (NAME@REVISION: at that branch, "
        "tag or commit; the commit is recorded either way), or NAME=FILE for a CSV or JSONL file, where NAME may also "
        "be harmful or harmless",
    )
    parser.add_argument("--set-prompts", type=int, metavar="N", help="the first N prompts of each set")
    parser.add_argument(
        "--judges",
        metavar="JUDGE,…",
        help="several judges on the same replies, as in embedded,minos: their rates, agreement and Cohen's kappa "
        "(judge_pairs.parquet); the rates of the other tables are those of the first, in the place of --judge",
    )
    parser.add_argument("--utility", metavar="TASK,…", help="mmlu, gsm8k, ifeval (default: none)")
    parser.add_argument(
        "--utility-items", type=int, metavar="N", help="the first N items of each task (of each of MMLU's 57)"
    )


def sets_and_tasks(args: argparse.Namespace) -> tuple[list[PromptSet], list[HarnessTask]]:
    """What these options name."""
    from engine.data.prompt_sets import read_prompt_sets
    from engine.measures.harness_tasks import utility_tasks

    sets = read_prompt_sets(parts(args.sets), args.set_prompts)
    return sets, utility_tasks(parts(args.utility), args.utility_items) if args.utility else []


def run(args: argparse.Namespace) -> None:
    from engine.studies.refusal.experiment import run_stage
    from engine.studies.refusal.transfer import Evaluated

    sets, tasks = sets_and_tasks(args)
    judges = _judges(args)
    with options.experiment(args, *judges[:1]) as (refusal, folder, runner):
        sources = {one.name: one.source for one in sets}
        study = Evaluated(refusal, sets, tasks, judges[1:])
        quality = refusal.judge_quality
        about: dict[str, Any] = {"judge_quality": quality.record()} if quality else {}
        about |= {"judges": {one.id: one.version for one in judges}} if judges else {}
        tables = run_stage(study, refusal, runner, folder, prompt_sets=sources, **about)
    shown = [name for name in ("transfer", "utility", "judge_pairs") if name in tables]
    if common.as_json(args, {"folder": folder} | {name: tables[name] for name in shown}):
        return
    _show_rates(tables["transfer"])
    if quality:
        common.out.print(
            f"Corrected for the errors of the judge (sensitivity {quality.counts.sensitivity:.3f}, specificity "
            f"{quality.counts.specificity:.3f} on {quality.source}): columns before_corrected, after_corrected",
            markup=False,
        )
    transfer = tables["transfer"]
    if "samples" in transfer.columns:  # replies, not prompts
        transfer = transfer.with_columns(n=pl.col("n") * pl.col("samples").fill_null(1))
    options.say_cut_off(transfer, ("after", "n", "after_unfinished"))
    for row in tables["utility"].iter_rows(named=True) if tasks else ():
        common.out.print(
            f"{row['selector']} {row['domain']} {row['task']}: {row['before']:.3f} > {row['after']:.3f} "
            f"({row['difference']:+.3f})"
        )
    if judges:
        _show_pairs(tables["judge_pairs"])
    common.out.print(f"written to {folder}", markup=False)


def _show_rates(transfer: pl.DataFrame) -> None:
    columns: tuple[str, ...] = ("selector", "edit", "prompts", "n", "before", "after")
    common.print_table("refused prompts, with 95% intervals", columns, map(_row, transfer.to_dicts()))
    columns = ("selector", "edit", "prompts", "newly", "no longer", "change", "McNemar's p")
    rows = map(_change, transfer.drop_nulls("change").to_dicts())
    common.print_table("prompts newly refused and no longer, change with its 95% interval", columns, rows)


def _judges(args: argparse.Namespace) -> list[Judge]:
    """Those of `--judges`; the first is the run's own."""
    from engine.judges.base import open_judges

    names = parts(args.judges)
    if not names:
        return []
    if len(set(names)) < 2:
        raise InputError(f"--judges compares two or more, got {args.judges!r}; give one alone with --judge")
    if args.judge and args.judge != names[0]:
        raise InputError(
            f"--judge {args.judge} and --judges {args.judges} name different first judges; leave --judge out"
        )
    args.judge = names[0]
    return open_judges(args.judges, args.device, of_refusal=True)


def _show_pairs(table: pl.DataFrame) -> None:
    """Both rates, agreement and kappa of every pair of judges, line by line, the one over all replies last."""
    columns = ("selector", "domain", "prompts", "judges", "n", "rates", "same", "kappa")
    common.print_table("two judges on the same replies, with 95% intervals", columns, map(_pair, table.to_dicts()))
    unjudged = max(table.filter(selector="all")["unjudged"].to_list(), default=0)
    if unjudged:
        common.out.print(f"up to {unjudged:,} replies were left out that one of two judges could not judge")


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
