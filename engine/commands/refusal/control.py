"""`refusal control`: random masks of the same size beside every operating point, the paper's figure."""

from __future__ import annotations

import argparse
from typing import Any

from engine.commands import common
from engine.commands.refusal import options


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "control",
        help="the mean of random masks of the same size, as in the paper; writes refusal_controls.parquet",
        description="Masks with the same number of rows in every layer, and in the whole model, one per seed, on the "
        "held-out pairs. The gain is the real mask's refusal minus the controls' mean. Its 95% interval takes no "
        "account of the search: the real mask is the best of a grid and the controls are not, so that it does not say "
        "that these rows matter; `refusal draws` tests that.",
    )
    options.add_options(parser, run)


def run(args: argparse.Namespace) -> None:
    from engine.studies.refusal.experiment import run_stage
    from engine.studies.refusal.points import POINTS, Controlled

    with options.experiment(args) as (refusal, folder, runner):
        seeds = refusal.plan.control_seeds
        tables = run_stage(Controlled(refusal), refusal, runner, folder, control_seeds=seeds)
    table = tables[POINTS]
    if common.as_json(args, {"folder": folder, "gains": table, "controls": tables["refusal_controls"]}):
        return
    columns = ("selector", "domain", "edited", "same layers", "whole model", "gain")
    rows = (_row(row) for row in table.iter_rows(named=True))
    common.print_table("malign refusal: edited, mean of the controls, gain (95% interval)", columns, rows)
    common.out.print(
        "The controls were not searched as the edit was: this is the paper's figure and no test; next: refusal draws",
        markup=False,
    )
    common.out.print(f"written to {folder}", markup=False)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    if row["gain"] is None:
        return row["selector"], row["domain"], "no operating point"
    gain = f"{row['gain']:+.2f} ({row['gain_low']:+.2f} to {row['gain_high']:+.2f})"
    rates = (row["edited_malign"], row["control_malign"], row["global_malign"])
    return row["selector"], row["domain"], *(f"{rate:.2f}" for rate in rates), gain
