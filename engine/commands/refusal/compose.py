"""`refusal compose`: one mask for several domains, beside the masks of each."""

from __future__ import annotations

import argparse

from rich.table import Table

from engine.commands import common
from engine.commands.refusal import options
from engine.records import Stopwatch


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compose",
        help="one mask from the pairs of several domains; writes composed.parquet",
        description="Builds one contrast from all pairs of --domains (default hate,crime), takes its operating point "
        "and measures it on the held-out pairs of each domain, beside the single masks of the same size.",
    )
    options.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.refusal.composed import compose
    from engine.refusal.results import write_tables

    args.domains = args.domains or "hate,crime"
    watch = Stopwatch()
    with options.experiment(args) as (refusal, folder):
        table, sweep = compose(refusal, tuple(refusal.calibration))
        write_tables(folder, refusal, {"composed": table, "composed_sweep": sweep}, watch.elapsed_s)
    if args.json:
        common.print_json({"folder": str(folder), "composed": table.to_dicts()})
        return
    view = Table(title="refusal on held-out pairs; masks of one selector have the same number of rows")
    for column in ("selector", "mask from", "asked about", "rows", "malign", "benign", "perplexity"):
        view.add_column(column)
    for row in table.iter_rows(named=True):
        rates = (f"{row['malign']:.2f}", f"{row['benign']:.2f}", f"{row['perplexity']:.4g}")
        view.add_row(
            row["selector"], row["mask_domain"], row["evaluated_domain"], str(row["rows_removed"]), *rates
        )
    common.out.print(view)
    common.out.print(f"written to {folder}", markup=False)
