"""`merge`: the stores of shards joined into one.

Copies every cell and array of the stores into --store, which is made if absent, after all have been checked against
their checksums and each other: a damaged entry is left out and named, two values under one key are an error, and so is
an entry of a version without checksums. Changes nothing in the stores, and does not take their tables: the command that
was run with --shard writes them without it. Can be stopped and run again."""

import argparse
from pathlib import Path

from engine.commands import common
from engine.results.merging import merge

_SHOWN = 3  # damaged entries of each store that are named


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stores", metavar="STORE", nargs="+", type=Path, help="what --store named in each shard")
    common.add_storage(parser, folder=False)
    common.add_json(parser)


def run(args: argparse.Namespace) -> None:
    with common.progress_bar(args) as progress:
        merged, folder = merge(args.stores, args.store, progress)
    for store, entries in merged.damaged.items():
        more = f" and {len(entries) - _SHOWN:,} more" if len(entries) > _SHOWN else ""
        common.err.print(
            f"note: {store}: left out as damaged: {', '.join(entries[:_SHOWN])}{more}; where they are needed, they are "
            "computed again",
            soft_wrap=True,
        )
    damaged = {str(store): entries for store, entries in merged.damaged.items()}
    counts = {name: getattr(merged, name) for name in ("cells", "new_cells", "arrays", "new_arrays")}
    if common.as_json(args, {"store": folder, **counts, "damaged": damaged}):
        return
    common.out.print(
        f"{merged.cells:,} cells ({merged.new_cells:,} new) and {merged.arrays:,} arrays ({merged.new_arrays:,} new) "
        f"merged into {folder}; next: the command of the shards, without --shard"
    )
