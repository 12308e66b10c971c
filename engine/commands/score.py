"""`score`: one importance score per row and selector."""

from __future__ import annotations

import argparse

from rich.table import Table

from engine.commands import common
from engine.records import check_folder
from engine.store import Store


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "score",
        help="score every row with the chosen selectors",
        description="Writes scores.safetensors (one float32 per row and selector, higher = more important), "
        "rows.parquet (what each row is) and manifest.json.",
    )
    common.add_model(parser)
    common.add_scoring(parser)
    common.add_device(parser)
    common.add_storage(parser)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.scores import score_model, write_scores

    plan = common.score_plan(args)
    with Store(args.store) as store:
        folder = common.output_folder(args, store)
        loaded = common.load(args)
        check_folder(folder, loaded.fingerprint)
        with common.progress_bar(args) as progress:
            result = score_model(loaded, plan, store=store, progress=progress)
        manifest = write_scores(folder, loaded, result)
    if args.json:
        common.print_json({"folder": str(folder), "rows": loaded.rows.n_rows, "manifest": manifest})
        return
    table = Table(title=f"{loaded.id}: scores of {loaded.rows.n_rows:,} rows")
    for column in ("selector", "lowest", "median", "highest"):
        table.add_column(column, justify="left" if column == "selector" else "right")
    for selector, scores in result.scores.items():
        table.add_row(selector, f"{scores.min():.3g}", f"{scores.median():.3g}", f"{scores.max():.3g}")
    common.out.print(table)
    common.out.print(f"written to {folder}", markup=False)
