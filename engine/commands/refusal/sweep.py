"""`refusal sweep`: refusal and perplexity over the grid of lambda and k."""

from __future__ import annotations

import argparse

from engine.commands import common
from engine.commands.refusal import options
from engine.records import Stopwatch


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "sweep",
        help="refusal and perplexity of every cell of the grid; writes refusal_sweep.parquet",
        description="Perplexity of all masks first, then replies for those under the cap. Every cell is kept: the "
        "same command resumes, and replies that were judged once are judged again without generating.",
    )
    options.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.refusal.grid import sweep_refusal
    from engine.refusal.results import write_tables

    watch = Stopwatch()
    with options.experiment(args) as (refusal, folder):
        table = sweep_refusal(refusal, refusal.contrasts, refusal.calibration)
        write_tables(folder, refusal, {"refusal_sweep": table}, watch.elapsed_s)
    if args.json:
        common.print_json({"folder": str(folder), "refusal_sweep": table.to_dicts()})
        return
    generated = table["malign"].is_not_null().sum()
    common.out.print(
        f"{table.height} cells, {generated} with replies, {table['feasible'].sum()} feasible; written to {folder}; "
        "next: refusal select",
        markup=False,
    )
