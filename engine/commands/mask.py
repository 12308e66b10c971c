"""`mask`: the row ids that a selector removes at a rate, as a file for other commands."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.commands import common
from engine.errors import InputError
from engine.masks import parse_rate
from engine.ranking import ORDERS
from engine.store import Store


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "mask",
        help="write the row ids that one selector removes at one rate",
        description="Writes int64 row ids (safetensors, tensor `removed`) with a manifest in the metadata. "
        "Scores come from the store where they are known and are computed otherwise.",
    )
    common.add_model(parser)
    parser.add_argument("--selector", required=True, help="whose ranking decides")
    parser.add_argument(
        "--order", default="lerf", choices=ORDERS, help="remove the lowest (lerf) or highest (morf) rows"
    )
    parser.add_argument("--rate", required=True, help="fraction of all rows: 0.3 or 30%%")
    parser.add_argument(
        "--seed", type=int, help="which seed's ranking, for the random selector (default: the first)"
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write, for example mask.safetensors")
    common.add_scoring(parser)
    common.add_device(parser)
    common.add_storage(parser, folder=False)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.maskfile import write_mask
    from engine.masks import removed_rows
    from engine.scores import score_model

    rate = parse_rate(args.rate)
    if "," in args.selector:
        raise InputError(f"a mask is made from one selector, got {args.selector}; give one of them")
    args.selectors = args.selector
    plan = common.score_plan(args)
    with Store(args.store) as store:
        loaded = common.load(args)
        with common.progress_bar(args) as progress:
            result = score_model(loaded, plan, store=store, progress=progress)
    scores = result.ranking(args.selector, args.seed)
    removed = removed_rows(scores, args.order, rate)
    spec = {
        "selector": args.selector,
        "seed": args.seed,
        "order": args.order,
        "rate": rate,
        "scores": result.spec,
    }
    write_mask(args.out, removed, loaded.fingerprint, spec)
    if args.json:
        common.print_json({"file": str(args.out), "rows_removed": len(removed), "rows": loaded.rows.n_rows})
    else:
        common.out.print(
            f"{len(removed):,} of {loaded.rows.n_rows:,} rows written to {args.out}", markup=False
        )
