"""`refusal sweep`: refusal and perplexity over the grid of lambda and k."""

from __future__ import annotations

import argparse

from engine.commands import common
from engine.commands.refusal import options


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "sweep",
        help="refusal and perplexity of every cell of the grid; writes refusal_sweep.parquet",
        description="Perplexity of all masks first, then replies for those under the cap. Where an operating point "
        "lies at the edge of the grid, the grid goes on beyond it (--widen). Every cell is kept: the same command "
        "resumes, and replies that were judged once are judged again without generating.",
    )
    options.add_options(parser, run)


def run(args: argparse.Namespace) -> None:
    from engine.studies.refusal.experiment import run_stage
    from engine.studies.refusal.grid import Grid

    with options.experiment(args) as (refusal, folder, runner):
        study = Grid(refusal, refusal.contrasts, refusal.calibration)
        table = run_stage(study, refusal, runner, folder)["refusal_sweep"]
    if common.as_json(args, {"folder": folder, "refusal_sweep": table}):
        return
    generated = table["malign"].is_not_null().sum()
    common.out.print(
        f"{table.height} cells, {generated} with replies, {table['feasible'].sum()} feasible; written to {folder}; "
        "next: refusal select",
        markup=False,
    )
    options.say_cut_off(table, ("malign", "malign_n", "malign_unfinished"), ("benign", "benign_n", "benign_unfinished"))
