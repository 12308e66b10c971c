"""`refusal select`: the operating point of every selector and domain, and the cells around it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from engine.commands import common
from engine.commands.refusal import options
from engine.records import Stopwatch

if TYPE_CHECKING:
    import polars as pl

    from engine.refusal.points import Points
    from engine.refusal.run import RefusalRun


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "select",
        help="the best cell within the limits, or its rescue; writes operating_points.parquet",
        description="Largest malign refusal with benign refusal and perplexity within their limits, ties to the "
        "smaller mask. Where no cell is, the benign limit is relaxed and the point is flagged as a rescue.",
    )
    options.add_options(parser)
    parser.set_defaults(run=run)


def points_of(refusal: RefusalRun) -> tuple[pl.DataFrame, Points]:
    """The sweep, from the store where it is known, and the operating points in it."""
    from engine.evaluation.perplexity import perplexity
    from engine.refusal.grid import sweep_refusal
    from engine.refusal.operating_point import operating_points

    sweep = sweep_refusal(refusal, refusal.contrasts, refusal.calibration)
    limits = {"benign_limit": refusal.plan.benign_limit, "max_perplexity": perplexity(refusal.max_nll)}
    return sweep, operating_points(sweep, **limits)


def run(args: argparse.Namespace) -> None:
    from engine.refusal.points import POINTS, chosen_table, with_earlier
    from engine.refusal.results import write_tables

    watch = Stopwatch()
    with options.experiment(args) as (refusal, folder):
        sweep, points = points_of(refusal)
        table, kept = with_earlier(folder, refusal, chosen_table(refusal, points))
        write_tables(folder, refusal, {"refusal_sweep": sweep}, watch.elapsed_s)
        write_tables(folder, refusal, {POINTS: table}, watch.elapsed_s, **kept)
    if args.json:
        chosen = [
            {"selector": selector, "domain": domain, "point": asdict(point) if point else None}
            for (selector, domain), point in points.items()
        ]
        common.print_json({"folder": str(folder), "operating_points": chosen})
        return
    common.out.print(_view(points))
    common.out.print(f"written to {folder}; next: refusal control, refusal evaluate", markup=False)


def _view(points: Points) -> Table:
    view = Table(title="operating points, by the rates on the calibration pairs (before > after)")
    for column in ("selector", "domain", "lambda", "k", "malign", "benign", "neighbours' malign", ""):
        view.add_column(column)
    for (selector, domain), point in points.items():
        if point is None:
            view.add_row(selector, domain, "-", "-", "no cell is within the limits")
            continue
        around = " ".join("-" if one.malign is None else f"{one.malign:.2f}" for one in point.neighbours)
        view.add_row(
            selector,
            domain,
            f"{point.lam:g}",
            f"{point.k:g}",
            f"{point.unedited_malign:.2f} > {point.malign:.2f}",
            f"{point.unedited_benign:.2f} > {point.benign:.2f}",
            around or "none",
            f"rescue, benign <= {point.benign_cap:g}" if point.rescue else "",
        )
    return view
