"""`refusal compose`: one mask for several domains, beside the masks of each."""

from __future__ import annotations

import argparse

from engine.commands import common
from engine.commands.refusal import options
from engine.run.refusal_plan import COMPOSED_DOMAINS


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compose",
        help="one mask from the pairs of several domains; writes composed.parquet and a mask file",
        description="Builds one contrast from all pairs of --domains, takes its operating point and measures it on the "
        "held-out pairs of each domain, beside the single masks of the same size. The composed mask of each selector "
        "is written beside the table, for `refusal chat --mask` and `export --mask`.",
    )
    options.add_options(parser, run, domains=COMPOSED_DOMAINS)


def run(args: argparse.Namespace) -> None:
    from engine.studies.refusal.composed import Composed
    from engine.studies.refusal.experiment import run_stage
    from engine.studies.refusal.mask_outputs import kept_masks

    with options.experiment(args) as (refusal, folder, runner):
        study = Composed(refusal, tuple(refusal.calibration))
        table = run_stage(study, refusal, runner, folder)["composed"]
    masks = list(kept_masks(folder, study.masks_of).values())
    if common.as_json(args, {"folder": folder, "composed": table, "masks": masks}):
        return
    rows = []
    for row in table.iter_rows(named=True):
        rates = (f"{row['malign']:.2f}", f"{row['benign']:.2f}", f"{row['perplexity']:.4g}")
        rows.append((row["selector"], row["mask_domain"], row["evaluated_domain"], str(row["rows_removed"]), *rates))
    columns = ("selector", "mask from", "asked about", "rows", "malign", "benign", "perplexity")
    common.print_table("refusal on held-out pairs; masks of one selector have the same number of rows", columns, rows)
    options.say_masks(args, folder, study.masks_of)
