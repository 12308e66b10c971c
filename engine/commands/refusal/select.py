"""`refusal select`: the operating point of every selector and domain, and the cells around it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from engine.commands import common
from engine.commands.refusal import options

if TYPE_CHECKING:
    from engine.studies.refusal.operating_point import OperatingPoint


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "select",
        help="the best cell within the limits, or its rescue; writes operating_points.parquet and a mask file of each",
        description="Largest malign refusal with benign refusal and perplexity within their limits, ties to the "
        "smaller mask. Where no cell is, the benign limit is relaxed and the point is flagged as a rescue. A "
        "point at the edge of its grid is flagged as well, after the grid went on beyond it (--widen). The mask "
        "of each point is written beside the table, mask-SELECTOR-DOMAIN.safetensors, for `refusal chat --mask` and "
        "`export --mask`.",
    )
    options.add_options(parser, run)


def run(args: argparse.Namespace) -> None:
    from engine.studies.refusal.experiment import run_stage
    from engine.studies.refusal.mask_outputs import kept_masks
    from engine.studies.refusal.points import Chosen

    with options.experiment(args) as (refusal, folder, runner):
        study = Chosen(refusal)
        run_stage(study, refusal, runner, folder)
        points = study.points(refusal, runner.results)
        edges = study.grid.edges(refusal, runner.results, points)
    if args.json:
        masks = kept_masks(folder, study.masks_of)
        chosen = [
            {
                "selector": place[0],
                "domain": place[1],
                "point": asdict(point) if point else None,
                "edge": edges.get(place),
                "mask": masks.get(place),
            }
            for place, point in points.items()
        ]
        common.print_json({"folder": str(folder), "operating_points": chosen})
        return
    title = "operating points, by the rates on the calibration pairs (before > after)"
    columns = ("selector", "domain", "lambda", "k", "malign", "benign", "neighbours' malign")
    common.print_table(title, columns, (_cells(*place, point) for place, point in points.items()), texts=2)
    options.say_notes((place, _notes(point, edges.get(place, "none"))) for place, point in points.items())
    options.say_masks(args, folder, study.masks_of)
    common.out.print("or refusal control and refusal evaluate, with the options of this command", markup=False)


def _cells(selector: str, domain: str, point: OperatingPoint | None) -> tuple[str, ...]:
    if point is None:
        return (selector, domain, *["-"] * 5)
    malign = f"{point.unedited_malign:.2f} > {point.malign:.2f}"
    benign = f"{point.unedited_benign:.2f} > {point.benign:.2f}"
    around = " ".join("-" if one.malign is None else f"{one.malign:.2f}" for one in point.neighbours)
    return selector, domain, f"{point.lam:g}", f"{point.k:g}", malign, benign, around or "none"


def _notes(point: OperatingPoint | None, edge: str) -> str:
    if point is None:
        return "no cell is within the limits"
    rescue = f"rescue, benign <= {point.benign_cap:g}" if point.rescue else ""
    return "; ".join(filter(None, (rescue, f"at the {edge} of the grid" if edge != "none" else "")))
