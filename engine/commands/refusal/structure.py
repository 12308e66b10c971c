"""`refusal structure`: density, overlap, projections and depths of the contrasts."""

from __future__ import annotations

import argparse

from engine.commands import common
from engine.commands.refusal import options
from engine.records.progress import Stopwatch


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "structure",
        help="how dense is the signal, where does it lie, do selectors and domains share it",
        description="Writes signal_density, refusal_jaccard and refusal_shares (each with what chance or the model's "
        "own rows give). Needs the contrasts only.",
    )
    options.add_options(parser, run, measures=False)


def run(args: argparse.Namespace) -> None:
    from engine.results.folders import write_tables
    from engine.studies.refusal.structure import structure

    watch = Stopwatch()
    with options.experiment(args, contrasts_only=True) as (refusal, folder, _):
        loaded = refusal.loaded
        tables = structure(loaded.name, refusal.contrasts, loaded.rows)
        write_tables(folder, tables, loaded.fingerprint, refusal.calibration_spec(), watch.elapsed_s)
    if common.as_json(args, {"folder": folder, **tables}):
        return
    for row in tables["signal_density"].iter_rows(named=True):
        common.out.print(f"{row['selector']} {row['domain']}: {row['density']:.2%} of the rows are signal")
    common.out.print(f"written to {folder}", markup=False)
