"""`refusal draws`: is it these rows? Random draws that are searched and chosen like the edit."""

from __future__ import annotations

import argparse
from typing import Any

from engine.commands import common
from engine.commands.refusal import options

LEVEL = 0.05


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "draws",
        help="is it these rows? random draws with a grid and a choice of their own; writes specificity.parquet",
        description="Shuffles the rows within every layer, searches the shuffled masks over the same grid with the "
        "same limits on the same pairs, and measures the chosen one on the held-out pairs, once per draw. Writes the "
        "edit's rank and p among the draws, p adjusted by Holm over all selectors and domains, and a 95% prediction "
        "interval for a further draw; refusal_draws.parquet has the draws. Each draw costs as much as `refusal sweep`: "
        "fewer --selectors and --domains cost less and leave Holm less to adjust for.",
    )
    options.add_options(parser, run)


def run(args: argparse.Namespace) -> None:
    from engine.studies.refusal.draws import Drawn, draw_seeds
    from engine.studies.refusal.experiment import run_stage

    with options.experiment(args) as (refusal, folder, runner):
        study = Drawn(refusal)
        if not args.json:
            common.err.print(
                f"{refusal.plan.draws} draws, each a grid of its own: up to {study.most_cells(refusal):,} masks beside "
                f"the edit's {len(study.real.places):,}, each with replies to the calibration pairs of its domain",
                markup=False,
                soft_wrap=True,
            )
        tables = run_stage(study, refusal, runner, folder, draw_seeds=list(draw_seeds(refusal)))
    table = tables["specificity"]
    if common.as_json(args, {"folder": folder, "specificity": table, "draws": tables["refusal_draws"]}):
        return
    columns = ("selector", "domain", "edited", "draws", "95% for a further draw", "rank", "p", "Holm's p")
    rows = (_row(row) for row in table.iter_rows(named=True))
    common.print_table("malign refusal: the edit among layer-matched draws with their own grid", columns, rows)
    if (least := table.height / (refusal.plan.draws + 1)) > LEVEL:
        common.out.print(
            f"{refusal.plan.draws} draws, tests: {table.height}: Holm's p cannot be below {min(1, least):.2f} so; "
            f"{LEVEL} takes {round(table.height / LEVEL) - 1} draws" + (", or fewer tests" if table.height > 1 else ""),
            markup=False,
        )
    common.out.print(f"written to {folder}", markup=False)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    without = f" ({row['draws_without_point']} without a point)" if row["draws_without_point"] else ""
    edited = f"{row['edited_malign']:.2f}" + ("" if row["k"] is not None else " (no point: unedited)")
    return (
        row["selector"],
        row["domain"],
        edited,
        f"{row['draws_malign']:.2f}{without}",
        f"{row['draws_low']:.2f} to {row['draws_high']:.2f}",
        f"{row['rank']} of {row['draws'] + 1}",
        f"{row['p']:.3f}",
        f"{row['p_holm']:.3f}",
    )
