"""`refusal control`: random masks of the same size beside every operating point."""

from __future__ import annotations

import argparse

from rich.table import Table

from engine.commands import common
from engine.commands.refusal import options
from engine.commands.refusal.select import points_of
from engine.records import Stopwatch


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "control",
        help="is it these rows? random masks of the same size; writes refusal_controls.parquet",
        description="Masks with the same number of rows in every layer, and in the whole model, one per seed, on the "
        "held-out pairs. The gain is the real mask's refusal minus the controls' mean, with a 95% interval.",
    )
    options.add_options(parser)
    parser.add_argument("--seeds", default="42,43,44", help="seeds of the controls (default 42,43,44)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.refusal.points import (
        POINTS,
        chosen_table,
        controlled_table,
        joined,
        measured_table,
        with_earlier,
    )
    from engine.refusal.results import write_tables

    args.control_seeds = common.integers(args.seeds, "--seeds")
    watch = Stopwatch()
    with options.experiment(args) as (refusal, folder):
        _, points = points_of(refusal)
        measured = measured_table(refusal, refusal.contrasts, points)
        controlled, controls = controlled_table(refusal, refusal.contrasts, points)
        table = joined(chosen_table(refusal, points), measured, controlled)
        whole, _ = with_earlier(folder, refusal, table)
        tables = {POINTS: whole, "refusal_controls": controls}
        write_tables(folder, refusal, tables, watch.elapsed_s, control_seeds=list(refusal.plan.control_seeds))
    if args.json:
        common.print_json(
            {"folder": str(folder), "gains": controlled.to_dicts(), "controls": controls.to_dicts()}
        )
        return
    view = Table(title="malign refusal: edited, mean of the controls, gain (95% interval)")
    for column in ("selector", "domain", "edited", "same layers", "whole model", "gain"):
        view.add_column(column)
    for row in table.iter_rows(named=True):
        if row["gain"] is None:
            view.add_row(row["selector"], row["domain"], "no operating point")
            continue
        gain = f"{row['gain']:+.2f} ({row['gain_low']:+.2f} to {row['gain_high']:+.2f})"
        rates = (row["edited_malign"], row["control_malign"], row["global_malign"])
        view.add_row(row["selector"], row["domain"], *(f"{rate:.2f}" for rate in rates), gain)
    common.out.print(view)
    common.out.print(f"written to {folder}", markup=False)
