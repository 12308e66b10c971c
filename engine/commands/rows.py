"""`rows`: the row index of a model in numbers, from its configuration alone."""

from __future__ import annotations

import argparse

from rich.table import Table

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
    from engine.models import load_rows

    index = load_rows(args.model, revision=args.revision)
    kinds: dict[tuple[str, str], list[int]] = {}
    for layer in index.layers:
        kinds.setdefault((layer.sublayer, layer.projection), []).append(layer.rows)
    projections = [
        {
            "sublayer": sublayer,
            "projection": projection,
            "layers": len(sizes),
            "rows": sum(sizes),
            "share": sum(sizes) / index.n_rows,
        }
        for (sublayer, projection), sizes in kinds.items()
    ]
    if args.json:
        common.print_json(
            {
                "model": args.model,
                "blocks": index.n_blocks,
                "layers": len(index.layers),
                "rows": index.n_rows,
                "projections": projections,
            }
        )
        return
    table = Table(
        title=f"{args.model}: {index.n_rows:,} rows in {len(index.layers)} layers of {index.n_blocks} blocks"
    )
    for column in ("sublayer", "projection"):
        table.add_column(column)
    for column in ("layers", "rows", "share"):
        table.add_column(column, justify="right")
    for entry in projections:
        table.add_row(
            str(entry["sublayer"]),
            str(entry["projection"]),
            f"{entry['layers']:,}",
            f"{entry['rows']:,}",
            f"{entry['share']:.1%}",
        )
    common.out.print(table)
