"""`mask`: the row ids that a selector removes at a rate, as a file for other commands.

Writes int64 row ids (safetensors, tensor `removed`) with a manifest in the metadata. Scores come from the store where
they are known and are computed otherwise."""

import argparse
from dataclasses import replace
from pathlib import Path

from engine.commands import common, options, outputs
from engine.edits.masks import parse_rate, removed_rows
from engine.records.errors import InputError
from engine.records.manifest import shortfalls
from engine.results.store import Store
from engine.run.audit_plan import SHIPPED, AuditPlan, for_model
from engine.stats.removal_order import ORDERS


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser)
    parser.add_argument("--selector", required=True, help="whose ranking decides")
    parser.add_argument(
        "--order", default=ORDERS[0], choices=ORDERS,
        help=f"remove the lowest (lerf) or highest (morf) rows (default: {ORDERS[0]})",
    )  # fmt: skip
    parser.add_argument("--rate", required=True, help="fraction of all rows: 0.3 or 30%%")
    parser.add_argument("--seed", type=int, help="which seed's ranking, for the random selector (default: the first)")
    parser.add_argument("--out", type=Path, required=True, help="file to write, for example mask.safetensors")
    scoring = {"": AuditPlan().scoring, "shipped model": for_model(AuditPlan(), SHIPPED).scoring}
    options.add_options(parser, scoring, but=["selectors"])
    common.add_run(parser, folder=False)
    parser.set_defaults(writes=outputs.mask)


def run(args: argparse.Namespace) -> None:
    from engine.edits.contrasts import write_mask
    from engine.run.scoring import check_seed, fitting, score_model
    from engine.selectors import own_scores

    rate = parse_rate(args.rate)
    if "," in args.selector:
        raise InputError(f"a mask is made from one selector, got {args.selector}; give one of them")
    if args.scores:  # its names before what uses them
        own_scores.read_option(",".join(args.scores), "--scores")
    scoring = replace(for_model(AuditPlan(), args.model).scoring, selectors=(args.selector,))
    plan = options.plan_from(args, scoring)
    check_seed(args.seed, plan.seeds)
    fitting(common.sketch(args), plan, named=True)
    with Store(args.store) as store:
        loaded = common.load(args)
        with common.progress_bar(args) as progress:
            result = score_model(loaded, plan, store=store, progress=progress)
    removed = removed_rows(result.ranking(args.selector, args.seed), args.order, rate)
    spec = {"selector": args.selector, "seed": args.seed, "order": args.order, "rate": rate, "scores": result.spec}
    write_mask(args.out, removed, loaded.fingerprint, spec)
    notes = shortfalls(spec)
    for note in notes:
        common.err.print(f"note: {note}", soft_wrap=True)
    answer = {"file": args.out, "rows_removed": len(removed), "rows": loaded.rows.n_rows, "notes": notes}
    if not common.as_json(args, answer):
        common.out.print(f"{len(removed):,} of {loaded.rows.n_rows:,} rows written to {args.out}")
