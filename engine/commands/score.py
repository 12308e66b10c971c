"""`score`: one importance score per row and selector.

Writes scores.safetensors (one float32 per row and selector, higher = more important), rows.parquet (what each row is)
and manifest.json."""

import argparse
from dataclasses import replace

from engine.commands import common, options
from engine.records.progress import begin
from engine.results.store import Store
from engine.run.audit_plan import SHIPPED, AuditPlan, for_model


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser)
    options.add_options(parser, {"": AuditPlan().scoring, "shipped model": for_model(AuditPlan(), SHIPPED).scoring})
    common.add_run(parser)


def run(args: argparse.Namespace) -> None:
    from engine.run.scoring import first_position_shares, fitting, score_model, told, write_scores

    plan = options.plan_from(args, for_model(AuditPlan(), args.model).scoring)
    plan, left_out = fitting(common.sketch(args), plan, named=args.selectors is not None)
    common.say_left_out(left_out)
    with Store(args.store) as store:
        folder, loaded = common.folder_and_model(args, store)
        with common.progress_bar(args) as progress:
            begin(progress, "scores", 1, 1)
            result = score_model(loaded, plan, store=store, progress=progress)
            shares = first_position_shares(loaded, plan, progress)
        if shares:
            result = replace(result, spec={**result.spec, "first_position": shares})
        manifest = write_scores(folder, loaded, result)
    common.say_notes(folder)
    for note in told(shares):
        common.err.print(f"note: {note}", soft_wrap=True)
    if "experts" in result.spec:
        common.err.print(f"note: {result.spec['experts']}", soft_wrap=True)
    answer = {"folder": str(folder), "rows": loaded.rows.n_rows, "left_out": left_out, "manifest": manifest}
    if common.as_json(args, answer):
        return
    rows = (
        (selector, *(f"{value:.3g}" for value in (scores.min(), scores.median(), scores.max())))
        for selector, scores in result.scores.items()
    )
    title = f"{loaded.name}: scores of {loaded.rows.n_rows:,} rows"
    common.print_table(title, ("selector", "lowest", "median", "highest"), rows, texts=1)
    common.out.print(f"written to {folder}")
