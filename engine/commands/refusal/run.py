"""`refusal run`: all stages of a refusal experiment, one after the other.

From pairs of prompts to measured masks. Writes what the single stages write, each table as soon as it is there, and
says beforehand how many cells are known and how long the rest takes, at the pace of the unedited model's own replies.
Every cell is kept: the same command goes on where it was stopped, and ends with the same tables."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.commands import common
from engine.commands.refusal import stage
from engine.records.errors import unknown
from engine.run.field_types import words
from engine.run.refusal_plan import DRAWS, SPLITS, STEERING
from engine.studies.base import STAGES, Study, Tables

if TYPE_CHECKING:
    from engine.run.runner import LocalRunner
    from engine.studies.refusal.refusal_inputs import RefusalInputs


STAGES_OF_RUN = ("calibrate", "sweep", "structure", "control", "evaluate")  # of every experiment, in their order


def add_options(parser: argparse.ArgumentParser) -> None:
    stage.add_options(parser, more=(DRAWS, SPLITS, STEERING))
    stage.add_sets(parser)
    parser.add_argument(
        "--compose", metavar="DOMAIN,…", help="also one mask for these domains together, as `refusal compose` makes it"
    )
    parser.add_argument(
        "--also",
        metavar="STAGE,…",
        help=f"further stages: {', '.join(_beyond())} (each draw costs as much as a sweep; default: none)",
    )


def _beyond() -> list[str]:
    """The stages that only `--also` asks for."""
    return [info.id for info in STAGES if info.id not in (*STAGES_OF_RUN, "select", "compose")]


def run(args: argparse.Namespace) -> None:
    from engine.results.folders import read_table
    from engine.studies.conduct import run_studies
    from engine.studies.refusal.draws import check_domains
    from engine.studies.refusal.mask_outputs import kept_masks
    from engine.studies.refusal.operating_point import POINTS
    from engine.studies.refusal.points import Chosen
    from engine.studies.refusal.transfer import Evaluated

    composed = words(args.compose, "--compose") if args.compose is not None else ()
    also = words(args.also, "--also") if args.also is not None else ()
    for name in also:
        if name not in _beyond():
            raise unknown("stage", name, _beyond())
    sets, tasks = stage.sets_and_tasks(args)
    makers = {"sweep": Chosen, "evaluate": lambda run: Evaluated(run, sets, tasks)}  # the sweep with its points
    with stage.experiment(args, STAGES_OF_RUN, quiet=True) as (refusal, folder, runner):

        def finished(name: str, study: Study[Any] | None, tables: Tables, seconds: float) -> None:
            if not args.json:
                line = (study or STAGES.get(name).make(refusal)).line(refusal, tables)
                common.err.print(f"{name}: {line}; {seconds:.0f} s", soft_wrap=True)
            if name == "calibrate" and (not args.json or args.progress_file):
                _announce(refusal, runner.shared, quiet=args.json)

        own = {}
        if composed:
            own["compose"] = replace(refusal, plan=replace(refusal.plan, domains=composed))
            check_domains(own["compose"], composed)  # before hours of other stages
        names = (*STAGES_OF_RUN, *own, *also)
        report = run_studies(refusal, names, folder, runner, makers=makers, inputs_of=own, finished=finished)
        runner.shared.bar_over(0)
    masks, points = kept_masks(folder, POINTS), read_table(folder, POINTS)
    both = {**masks, **kept_masks(folder, "composed")} if composed else masks
    record = {"folder": folder, "seconds": report["done"], POINTS: points, "masks": list(both.values())}
    if common.as_json(args, record):
        return
    columns = ("selector", "domain", "lambda", "k", "malign", "controls", "benign", "perplexity")
    rows = list(points.iter_rows(named=True))
    where = "held-out pairs" if refusal.measures_heldout else "the calibration pairs, as there are no others"
    title = f"refusal on {where}: before > after, layer-matched controls, times the perplexity"
    common.print_table(title, columns, map(_cells, rows), texts=2)
    for row in rows:
        if note := _notes(row):
            common.out.print(f"{row['selector']} {row['domain']}: {note}")
    stage.say_masks(args, folder, POINTS)
    if composed:
        stage.say_masks(args, folder, "composed")
    common.out.print(f"  {stage.dashboard_command(args, folder)}")


def _announce(refusal: RefusalInputs, runner: LocalRunner, *, quiet: bool) -> None:
    """The bar is over all cells that there may be, which are told unless quiet."""
    from engine.studies.conduct import at_pace

    swept, points = at_pace(STAGES.get("control").make(refusal), refusal, runner)
    if not quiet:
        common.err.print(f"sweep: at most {swept}", soft_wrap=True)
        common.err.print(f"control and evaluate: at most {points}", soft_wrap=True)
    runner.bar_over(swept.known + swept.to_compute + points.to_compute)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    key = (row["selector"], row["domain"])
    if row["k"] is None:
        return (*key, *["-"] * 6)
    malign, benign = (f"{row[f'unedited_{kind}']:.2f} > {row[f'edited_{kind}']:.2f}" for kind in ("malign", "benign"))
    numbers = (f"{row['lambda']:g}", f"{row['k']:g}", malign, f"{row['control_malign']:.2f}", benign)
    return (*key, *numbers, f"{row['perplexity_factor']:.2f}")


def _notes(row: dict[str, Any]) -> str:
    if row["k"] is None:
        return "no cell is within the limits"
    at_edge = [f"at the {row['edge']} of the grid"] if row["edge"] != "none" else []
    return "; ".join(["rescue"] * row["rescue"] + at_edge)
