"""`export`: the masked model as a standard Hugging Face checkpoint.

Copies the source's files and zeroes the removed rows in them, in the stored dtype (of packed weights, such as GGUF:
writes the numbers that they stand for); writes a model card. The result is a diagnostic artifact, not for
deployment."""

import argparse
from pathlib import Path

from engine.commands import common, options, outputs
from engine.run.refusal_plan import RefusalPlan


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser)
    options.add_edit(parser)
    options.add_effect(parser, "One that breaks the model is not exported either, unless --allow-broken.")
    parser.add_argument("--out", type=Path, required=True, help="new or empty folder for the checkpoint")
    parser.add_argument(
        "--record",
        type=Path,
        help="what is known about the edit, for the card: operating_points.parquet in its results folder, or a JSON "
        "object",
    )
    parser.add_argument(
        "--allow-broken",
        action="store_true",
        help="also export an edit under which perplexity on text is more than ten times the unedited model's; the card "
        "says so",
    )
    common.add_run(parser, folder=False)
    parser.set_defaults(writes=outputs.checkpoint)


def run(args: argparse.Namespace) -> None:
    from engine.edits.card import read_record
    from engine.edits.exporting import check_place, export_masked
    from engine.models.checkpoints import find_checkpoint
    from engine.models.loading import load_rows

    options.preflight(args)
    checkpoint = find_checkpoint(args.model, args.revision)
    rows = load_rows(args.model, args.revision)
    weights_hash = checkpoint.weights_hash()
    edit = options.chosen_edit(args, rows.n_rows, weights_hash)
    record = read_record(args.record, edit, weights_hash) if args.record else None
    check_place(edit, args.out)
    judge = common.one_judge(args.judge or RefusalPlan.judge)
    effect = options.effect_of(args, common.load(args), edit, judge, text_first=not args.allow_broken)
    with common.progress_bar(args) as progress:
        done = export_masked(
            checkpoint, edit, args.out, effect=effect, allow_broken=args.allow_broken, record=record, progress=progress
        )
    hashes = {"weights_hash": done.weights_hash, "mask_hash": edit.mask_hash}
    counts = {"rows_removed": done.rows_removed, "rows": rows.n_rows}
    if common.as_json(args, {"folder": done.folder, **counts, **hashes}):
        return
    common.out.print(
        f"{done.rows_removed:,} of {rows.n_rows:,} rows removed; checkpoint and card written to {done.folder}"
    )
