"""`refusal run`: all stages of a refusal experiment, one after the other."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import polars as pl

from engine.commands import common
from engine.commands.refusal import evaluate, options
from engine.records.errors import unknown
from engine.run.field_types import words

if TYPE_CHECKING:
    from engine.run.runner import LocalRunner
    from engine.studies.base import Tables
    from engine.studies.refusal.inputs import RefusalInputs


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="all stages by one command: calibrate, sweep, select, structure, control, evaluate; resumes",
        description="From pairs of prompts to measured masks. Writes what the single stages write, each table as soon "
        "as it is there, and says beforehand how many cells are known and how long the rest takes, at the pace of the "
        "unedited model's own replies. Every cell is kept: the same command goes on where it was stopped, and ends "
        "with the same tables. The stages alone take the same options.",
    )
    options.add_options(parser, run)
    evaluate.add_sets(parser)
    parser.add_argument(
        "--compose", metavar="DOMAIN,…", help="also one mask for these domains together, as `refusal compose` makes it"
    )
    parser.add_argument(
        "--also",
        metavar="STAGE,…",
        help="further stages: stability, baselines, draws (each draw costs as much as a sweep; default: none)",
    )


def run(args: argparse.Namespace) -> None:
    from engine.results.folders import read_table
    from engine.studies.refusal.experiment import BEYOND, run_experiment
    from engine.studies.refusal.mask_outputs import kept_masks
    from engine.studies.refusal.points import POINTS

    composed = words(args.compose, "--compose") if args.compose is not None else ()
    also = words(args.also, "--also") if args.also is not None else ()
    for name in also:
        if name not in BEYOND:
            raise unknown("stage", name, BEYOND)
    sets, tasks = evaluate.sets_and_tasks(args)
    with options.experiment(args, quiet=True) as (refusal, folder, runner):

        def finished(stage: str, tables: Tables, seconds: float) -> None:
            if not args.json:
                said = f"{stage}: {_said(stage, refusal, tables)}; {seconds:.0f} s"
                common.err.print(said, markup=False, soft_wrap=True)
            if stage == "calibrate" and (not args.json or args.progress_file):
                _announce(refusal, runner.shared, quiet=args.json)

        seconds = run_experiment(
            refusal, folder, runner, composed=composed, also=also, sets=sets, tasks=tasks, finished=finished
        )
        runner.shared.bar_over(0)
    masks, points = kept_masks(folder, POINTS), read_table(folder, POINTS)
    both = {**masks, **kept_masks(folder, "composed")} if composed else masks
    if common.as_json(args, {"folder": folder, "seconds": seconds, POINTS: points, "masks": list(both.values())}):
        return
    columns = ("selector", "domain", "lambda", "k", "malign", "controls", "benign", "perplexity")
    rows = list(points.iter_rows(named=True))
    where = "held-out pairs" if refusal.measures_heldout else "the calibration pairs, as there are no others"
    title = f"refusal on {where}: before > after, layer-matched controls, times the perplexity"
    common.print_table(title, columns, map(_cells, rows), texts=2)
    options.say_notes(((row["selector"], row["domain"]), _notes(row)) for row in rows)
    options.say_masks(args, folder, POINTS)
    if composed:
        options.say_masks(args, folder, "composed")
    common.out.print(f"  {options.dashboard_command(args, folder)}", markup=False)


def _announce(refusal: RefusalInputs, runner: LocalRunner, *, quiet: bool) -> None:
    """The bar is over all cells that there may be, which are told unless quiet."""
    from engine.studies.refusal.forecast import forecast

    swept, points = forecast(refusal, runner)
    if not quiet:
        common.err.print(f"sweep: at most {swept}", markup=False, soft_wrap=True)
        common.err.print(f"control and evaluate: at most {points}", markup=False, soft_wrap=True)
    runner.bar_over(swept.known + swept.to_compute + points.to_compute)


def _said(stage: str, refusal: RefusalInputs, tables: Tables) -> str:
    """What a stage found, in a few words."""
    if stage == "calibrate":
        pairs = sum(map(len, refusal.calibration.values()))
        return f"{len(refusal.contrasts)} contrasts from {pairs} pairs of {', '.join(refusal.calibration)}"
    if stage == "sweep":
        points, cells = tables["operating_points"], tables["refusal_sweep"]
        with_point = points.filter(pl.col("k").is_not_null())
        return (
            f"{cells.height} cells, {cells['feasible'].sum()} within the limits; operating points: "
            f"{with_point.height} of {points.height}, {with_point['rescue'].sum()} by rescue"
        )
    if stage == "structure":
        density = tables["signal_density"]["density"].to_list()
        return f"{min(density):.2%} to {max(density):.2%} of the rows are signal"
    if stage == "control":
        return f"{tables['refusal_controls'].height} random masks measured"
    if stage == "evaluate":
        return f"{tables['transfer'].height} rates before and after"
    return f"{', '.join(tables)} written"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    place = (row["selector"], row["domain"])
    if row["k"] is None:
        return (*place, *["-"] * 6)
    malign, benign = (f"{row[f'unedited_{kind}']:.2f} > {row[f'edited_{kind}']:.2f}" for kind in ("malign", "benign"))
    numbers = (f"{row['lambda']:g}", f"{row['k']:g}", malign, f"{row['control_malign']:.2f}", benign)
    return (*place, *numbers, f"{row['perplexity_factor']:.2f}")


def _notes(row: dict[str, Any]) -> str:
    if row["k"] is None:
        return "no cell is within the limits"
    at_edge = [f"at the {row['edge']} of the grid"] if row["edge"] != "none" else []
    return "; ".join(["rescue"] * row["rescue"] + at_edge)
