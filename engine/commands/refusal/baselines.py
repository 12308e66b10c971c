"""`refusal baselines`: row masks beside system prompts and steering vectors."""

from __future__ import annotations

import argparse
from typing import Any

from engine.commands import common
from engine.commands.refusal import options


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "baselines",
        help="is removing rows worth it? system prompts and steering vectors beside it; writes baselines.parquet",
        description="Row masks, system prompts, vectors added to the residual stream, and vectors added only where a "
        "condition on the prompt holds: each way's strongest setting within the limits of benign refusal and "
        "perplexity on the calibration pairs, measured on the held-out pairs, with the KL divergence from the unedited "
        "model on its own replies to harmless prompts.",
    )
    options.add_options(parser, run)


def run(args: argparse.Namespace) -> None:
    from engine.studies.refusal.baselines import TABLE, Baselines
    from engine.studies.refusal.experiment import run_stage

    with options.experiment(args) as (refusal, folder, runner):
        study = Baselines(refusal)
        table = run_stage(study, refusal, runner, folder, **study.record(refusal))[TABLE]
    final = "heldout" if refusal.measures_heldout else "calibration"
    if common.as_json(args, {"folder": folder, "impossible": study.impossible, TABLE: table}):
        return
    shown = [row for row in table.iter_rows(named=True) if row["prompts"] == final]
    rows = [_row(row) for row in shown if row["chosen"] or row["setting"] is None]
    columns = ("domain", "method", "vector", "setting", "malign", "benign", "perplexity", "KL")
    limit = refusal.plan.benign_limit
    title = f"each way's strongest setting with at most {limit:.0%} benign refusal on the calibration pairs; {final}"
    common.print_table(title, columns, rows, texts=4)
    for method, reason in study.impossible.items():
        common.out.print(f"{method}: {reason}", markup=False)
    chosen = table.filter(chosen=True, prompts=final)
    options.say_cut_off(
        chosen, ("edited_malign", "pairs", "malign_unfinished"), ("edited_benign", "pairs", "benign_unfinished")
    )
    common.out.print(f"written to {folder}", markup=False)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    place = (row["domain"], row["method"], row["vector"])
    if row["setting"] is None:
        return (*place, "none within the limits", "", "", "", "")
    sides = [f"{row[f'unedited_{side}']:.2f} > {row[f'edited_{side}']:.2f}" for side in ("malign", "benign")]
    return (*place, row["setting"], *sides, f"{row['perplexity']:.4g}", f"{row['kl']:.4f}")
