"""`export`: the masked model as a standard Hugging Face checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.commands import common, edit_options, outputs
from engine.commands.listed import COMMANDS
from engine.run.refusal_plan import RefusalPlan


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help=COMMANDS["export"],
        description="Copies the source's files and zeroes the removed rows in them, in the stored dtype; writes a "
        "model card. The result is a diagnostic artifact, not for deployment. First the model answers the held-out "
        "pairs as it is and under the edit, unless the store has the replies: an edit that refuses fewer risk prompts, "
        "over all domains or in one of its own, or over a twentieth fewer in another, is not exported. A mask that is "
        "no refusal edit is asked about the shipped pairs where no --pairs are given.",
    )
    common.add_model(parser)
    edit_options.add_edit(parser)
    edit_options.add_effect(parser)
    parser.add_argument("--out", type=Path, required=True, help="new or empty folder for the checkpoint")
    parser.add_argument(
        "--record",
        type=Path,
        help="what is known about the edit, for the card: operating_points.parquet in its results folder, or a JSON "
        "object",
    )
    common.add_run(parser, run, folder=False)
    parser.set_defaults(writes=outputs.checkpoint)


def run(args: argparse.Namespace) -> None:
    from engine.edits.card import read_record
    from engine.edits.export import check_place, export_masked
    from engine.models.checkpoints import find_checkpoint
    from engine.models.loading import load_rows

    edit_options.preflight(args)
    checkpoint = find_checkpoint(args.model, args.revision)
    rows = load_rows(args.model, args.revision)
    weights_hash = checkpoint.weights_hash()
    edit = edit_options.chosen_edit(args, rows.n_rows, weights_hash)
    record = read_record(args.record, edit, weights_hash) if args.record else None
    check_place(edit, args.out)
    judge = common.one_judge(args.judge or RefusalPlan.judge)
    effect = edit_options.effect_of(args, common.load(args), edit, judge)
    with common.progress_bar(args) as progress:
        done = export_masked(checkpoint, edit, args.out, effect=effect, record=record, progress=progress)
    hashes = {"weights_hash": done.weights_hash, "mask_hash": edit.mask_hash}
    counts = {"rows_removed": done.rows_removed, "rows": rows.n_rows}
    if common.as_json(args, {"folder": done.folder, **counts, **hashes}):
        return
    common.out.print(
        f"{done.rows_removed:,} of {rows.n_rows:,} rows removed; checkpoint and card written to {done.folder}",
        markup=False,
    )
