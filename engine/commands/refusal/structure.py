"""`refusal structure`: density, overlap, projections and depths of the contrasts."""

from __future__ import annotations

import argparse

from engine.commands import common
from engine.commands.refusal import options
from engine.records import Stopwatch


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "structure",
        help="how dense is the signal, where does it lie, do selectors and domains share it",
        description="Writes signal_density, refusal_jaccard and refusal_shares (each with what chance or the model's "
        "own rows give). Needs the contrasts only: nothing is generated.",
    )
    options.add_options(parser, grid=False)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.records import add_to_manifest, write_parquet
    from engine.refusal.structure import structure

    watch = Stopwatch()
    with options.experiment(args) as (refusal, folder):
        loaded = refusal.loaded
        tables = structure(loaded.id, refusal.contrasts, loaded.rows)
        for stem, table in tables.items():
            write_parquet(folder / f"{stem}.parquet", table)
            spec = refusal.calibration_spec()
            add_to_manifest(folder, loaded.fingerprint, f"{stem}.parquet", spec, watch.elapsed_s)
    if args.json:
        common.print_json(
            {"folder": str(folder)} | {stem: table.to_dicts() for stem, table in tables.items()}
        )
        return
    for row in tables["signal_density"].iter_rows(named=True):
        common.out.print(f"{row['selector']} {row['domain']}: {row['density']:.2%} of the rows are signal")
    common.out.print(f"written to {folder}", markup=False)
