"""`export`: the masked model as a standard Hugging Face checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.commands import common, edit_options


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="write the masked model as a checkpoint that transformers loads unchanged",
        description="Copies the source's files and zeroes the removed rows in them, in the stored dtype; writes a "
        "model card. The result is a diagnostic artifact, not for deployment. The model need not fit into memory.",
    )
    common.add_model(parser)
    edit_options.add_edit(parser)
    parser.add_argument("--out", type=Path, required=True, help="new or empty folder for the checkpoint")
    parser.add_argument(
        "--record",
        type=Path,
        help="what is known about the edit, for the card: operating_points.parquet in its results folder, or a JSON "
        "object",
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.checkpoints import find_checkpoint
    from engine.export import export_masked
    from engine.export_card import mask_hash, read_record
    from engine.models import load_rows

    checkpoint = find_checkpoint(args.model, args.revision)
    rows = load_rows(args.model, args.revision)
    weights_hash = checkpoint.weights_hash()
    edit = edit_options.chosen_edit(args, rows.n_rows, weights_hash)
    record = read_record(args.record, edit, weights_hash) if args.record else None
    with common.progress_bar(args) as progress:
        done = export_masked(checkpoint, edit, args.out, record=record, progress=progress)
    if args.json:
        common.print_json(
            {
                "folder": str(done.folder),
                "rows_removed": done.rows_removed,
                "rows": rows.n_rows,
                "weights_hash": done.weights_hash,
                "mask_hash": mask_hash(edit.mask),
            }
        )
        return
    common.out.print(
        f"{done.rows_removed:,} of {rows.n_rows:,} rows removed; checkpoint and card written to {done.folder}",
        markup=False,
    )
