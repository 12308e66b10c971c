"""`refusal stability`: does the mask depend on which prompts it was made from?"""

from __future__ import annotations

import argparse

from engine.commands import common
from engine.commands.refusal import options


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "stability",
        help="are the rows the same from other pairs? writes mask_stability.parquet",
        description="Splits the calibration pairs of a domain into two random halves, makes contrasts and a mask of "
        "each at the operating point's lambda and k, and compares the two masks, beside what random masks share. Each "
        "split costs as much as `refusal calibrate`.",
    )
    options.add_options(parser, run)


def run(args: argparse.Namespace) -> None:
    import polars as pl

    from engine.studies.refusal.experiment import run_stage
    from engine.studies.refusal.mask_stability import MaskStability

    with options.experiment(args) as (refusal, folder, runner):
        table = run_stage(MaskStability(refusal), refusal, runner, folder)["mask_stability"]
    if common.as_json(args, {"folder": folder, "mask_stability": table}):
        return
    names = ("jaccard", "jaccard_full", "expected_layers", "expected_random")
    means = table.group_by("selector", "domain", maintain_order=True).agg(pl.col(names).mean())
    rows = ((row[0], row[1], *(f"{value:.3f}" for value in row[2:])) for row in means.iter_rows())
    columns = ("selector", "domain", "half against half", "half against all", "same layers, random", "random")
    common.print_table(f"Jaccard of masks, mean of {refusal.plan.splits} splits of the pairs", columns, rows)
    common.out.print(f"written to {folder}", markup=False)
