"""`rows`: the row index of a model in numbers, from its configuration alone."""

from __future__ import annotations

import argparse

from engine.commands import common


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "rows",
        help="the row index in numbers: blocks, layers, rows, per projection",
        description="Counts the neuron rows that a mask can remove. Needs the configuration only, no weights.",
    )
    common.add_model(parser)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.models.loading import load_rows

    index = load_rows(args.model, revision=args.revision)
    kinds: dict[tuple[str, str], list[int]] = {}
    for layer in index.layers:
        kinds.setdefault((layer.sublayer, layer.projection), []).append(layer.rows)
    if args.json:
        columns = ("sublayer", "projection", "layers", "rows", "share")
        projections = [
            dict(zip(columns, (*kind, len(sizes), sum(sizes), sum(sizes) / index.n_rows), strict=True))
            for kind, sizes in kinds.items()
        ]
        counts = {"blocks": index.n_blocks, "layers": len(index.layers), "rows": index.n_rows}
        common.print_json({"model": args.model, **counts, "projections": projections})
        return
    rows = (
        (sublayer, projection, f"{len(sizes):,}", f"{sum(sizes):,}", f"{sum(sizes) / index.n_rows:.1%}")
        for (sublayer, projection), sizes in kinds.items()
    )
    title = f"{args.model}: {index.n_rows:,} rows in {len(index.layers)} layers of {index.n_blocks} blocks"
    common.print_table(title, ("sublayer", "projection", "layers", "rows", "share"), rows, texts=2)
