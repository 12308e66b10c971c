"""`refusal evaluate`: held-out prompts and utility, before and after every edit."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.table import Table

from engine.commands import common
from engine.commands.refusal import options
from engine.commands.refusal.select import points_of
from engine.records import Stopwatch

if TYPE_CHECKING:
    import polars as pl


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="does it hold on other prompts, and what does it cost? writes transfer.parquet, utility.parquet",
        description="Refusal on held-out pairs and on public prompt sets before and after every operating point, with "
        "Wilson's intervals; and utility through lm-evaluation-harness where it is asked for.",
    )
    options.add_options(parser)
    parser.add_argument(
        "--sets",
        metavar="SET,…",
        help="further prompts: sorrybench, orbench, xstest from the Hugging Face hub, or NAME=FILE for a CSV or JSONL "
        "file, where NAME may also be harmful or harmless",
    )
    parser.add_argument("--set-prompts", type=int, metavar="N", help="the first N prompts of each set")
    parser.add_argument("--utility", metavar="TASK,…", help="mmlu, gsm8k, ifeval (default: none)")
    parser.add_argument(
        "--utility-items", type=int, metavar="N", help="the first N items of each task (of each of MMLU's 57)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.evaluation.utility import utility_tasks
    from engine.refusal.points import POINTS, chosen_table, joined, measured_table, with_earlier
    from engine.refusal.prompt_sets import read_prompt_sets
    from engine.refusal.results import write_tables
    from engine.refusal.transfer import replies_table, transfer_table, utility_table

    watch = Stopwatch()
    sets = read_prompt_sets(_parts(args.sets), args.set_prompts)
    tasks = utility_tasks(_parts(args.utility))
    with options.experiment(args) as (refusal, folder):
        _, points = points_of(refusal)
        measured = measured_table(refusal, refusal.contrasts, points)
        table = joined(chosen_table(refusal, points), measured)
        table, kept = with_earlier(folder, refusal, table)
        tables = {
            "transfer": transfer_table(refusal, points, sets),
            "refusal_replies": replies_table(refusal, points, sets),
        }
        if tasks:
            tables["utility"] = utility_table(refusal, points, tasks, args.utility_items)
        sources = {one.name: one.source for one in sets}
        write_tables(folder, refusal, {POINTS: table}, watch.elapsed_s, **kept)
        write_tables(folder, refusal, tables, watch.elapsed_s, prompt_sets=sources)
    shown = [name for name in ("transfer", "utility") if name in tables]
    if args.json:
        common.print_json({"folder": str(folder)} | {name: tables[name].to_dicts() for name in shown})
        return
    common.out.print(_view(tables["transfer"]))
    for row in tables["utility"].iter_rows(named=True) if tasks else ():
        common.out.print(
            f"{row['selector']} {row['domain']} {row['task']}: {row['before']:.3f} > {row['after']:.3f} "
            f"({row['difference']:+.3f})"
        )
    common.out.print(f"written to {folder}", markup=False)


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _view(table: pl.DataFrame) -> Table:
    view = Table(title="refused prompts, with 95% intervals")
    for column in ("selector", "edit", "prompts", "n", "before", "after"):
        view.add_column(column)
    for row in table.iter_rows(named=True):
        sides = [
            f"{row[side]:.2f} ({row[f'{side}_low']:.2f} to {row[f'{side}_high']:.2f})"
            for side in ("before", "after")
        ]
        view.add_row(
            row["selector"], row["domain"], f"{row['prompts']}, {row['kind']}", str(row["n"]), *sides
        )
    return view
