"""`compare`: a finished run on one of the paper's models beside the published tables, or several runs.

Prints the order of the selectors and the sign of the gap (MoRF minus LeRF), then every published cell that the run
measured: its ratio to the printed value, and how many standard errors that is beyond half a unit of the last printed
digit, worst first. Of several runs: whether their selectors stand in the same order, by rank and sign tests. Writes
nothing."""

import argparse
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from engine.commands import common
from engine.edits.masks import parse_rate
from engine.records.errors import InputError

RATE = "0.3"  # the paper's reference rate
WORST, FURTHEST = 10, 3  # cells that are listed: with a standard error, and without one of each quantity


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", nargs="+",
        help="the model's id, the folder that `sweep` or `analyze` wrote, or USER/NAME that `push` uploaded; several: "
        "do they agree with each other?",
    )  # fmt: skip
    parser.add_argument(
        "--rate",
        default=None,
        help=f"of several runs: share of rows removed at which selectors are ordered (default: {RATE})",
    )
    parser.add_argument("--paper-model", help="the paper's model that the run stands for, if the id does not say")
    parser.add_argument(
        "--lm-eval", metavar="FILE", type=Path,
        help="of one run, instead: its downstream tasks beside a results_….json of `lm_eval --output_path`",
    )  # fmt: skip
    parser.add_argument("--cells", action="store_true", help="list every cell, not only the worst")
    common.add_storage(parser, folder=False)
    common.add_json(parser)


def run(args: argparse.Namespace) -> None:
    folders = [common.run_folder(model, args.store) for model in args.model]
    if len(folders) > 1:
        if given := next((name for name in ("paper_model", "lm_eval") if getattr(args, name)), None):
            raise InputError(f"--{given.replace('_', '-')} is for one run, got several runs; leave it out")
        _print_replication(args, folders)
        return
    if args.rate is not None:
        raise InputError("--rate is for several runs; one run is compared with the paper at every rate: leave it out")
    if args.lm_eval:
        _print_lm_eval(args, folders[0])
    else:
        _print_comparison(args, folders[0])


def _print_replication(args: argparse.Namespace, folders: list[Path]) -> None:
    from engine.studies.replication import replication

    answers = replication(folders, parse_rate(args.rate or RATE))
    if common.as_json(args, {name: getattr(answers, name) for name in answers.__dataclass_fields__}):
        return
    common.out.print(f"{', '.join(answers.models)}: {len(answers.selectors)} selectors that all have")
    for sentence in (*answers.sentences, *answers.notes):
        common.out.print(sentence)
    for order in answers.orders["order"]:
        wide = answers.values.filter(order=order).pivot("model", index="selector", values="nll").sort(answers.models[0])
        rows = ((name, *(_text(value) for value in values)) for name, *values in wide.iter_rows())
        common.print_table(f"{order}, NLL in nats per token", wide.columns, rows, texts=1)
    columns = ("order", "selectors", "before", "after", "p", "p_holm")
    pairs = answers.pairs.with_columns(selectors=pl.col("selector_a") + " before " + pl.col("selector_b"))
    lines = ([_text(row[name]) for name in columns] for row in pairs.sort("p", "order").iter_rows(named=True))
    common.print_table("pairs of selectors: on how many models, by sign test", columns, lines, texts=2)


def _print_lm_eval(args: argparse.Namespace, folder: Path) -> None:
    from engine.studies.comparison import beside

    tasks, missing = beside(folder, args.lm_eval)
    if common.as_json(args, {"tasks": tasks, "missing": missing}):
        return
    common.out.print(_view(f"accuracy of the unedited model: {folder} beside {args.lm_eval.name}", tasks))
    common.out.print("low, high: 95%, the errors taken as independent, which is too wide for the same items")
    for task in missing:
        common.out.print(f"not measured here: {task}")


def _print_comparison(args: argparse.Namespace, folder: Path) -> None:
    from engine.studies.comparison import compare, furthest, noise_sentences, summary

    pair = compare(folder, args.paper_model)
    counts = summary(pair)
    tables = {"orders": pair.orders, "signs": pair.signs, "summary": counts, "cells": pair.cells}
    answer = {"paper_model": pair.model, **tables, "missing": pair.missing, "departures": pair.departures}
    if common.as_json(args, answer):
        return
    common.out.print(f"{folder} beside the published {pair.model}")
    for departure in pair.departures:
        common.out.print(f"measured otherwise: {departure}")
    if pair.orders.height:
        common.out.print(_view("order of the selectors, pairs that the printed digits tell apart", pair.orders))
    if pair.signs.height:
        agreeing = pair.signs["same_sign"].sum()
        common.out.print(f"sign of the validity gap: the same in {agreeing} of {pair.signs.height} cells")
    for sentence in noise_sentences(pair.cells):
        common.out.print(sentence)
    tested = pair.cells.filter(pl.col("z").is_not_null())
    if args.cells:
        _print_cells("every cell, worst first", pair.cells)
    else:
        _print_cells("worst cells, by the standard errors that they are away", tested.head(WORST))
        _print_cells("furthest cells without a standard error", furthest(pair.cells, FURTHEST))
    common.out.print(_view("cells per quantity; within: half a unit of the last printed digit", counts))
    for quantity, missing in pair.missing.items():
        common.out.print(f"not measured here: {missing} published cells of {quantity}")


def _print_cells(title: str, cells: pl.DataFrame) -> None:
    """One line per cell, what names it in the first column; nothing where there are no cells."""
    if cells.height:
        numbers = ("published", "measured", "log_ratio", "difference", "z", "p_holm")
        shown = [name for name in numbers if cells[name].null_count() < cells.height]
        if not cells["log_ratio"].null_count():
            shown.remove("difference")  # the ratio says it
        lines = ((_cell(row), *(_text(row[name]) for name in shown)) for row in cells.iter_rows(named=True))
        common.print_table(title, ("cell", *(name.replace("_", " ") for name in shown)), lines, texts=1)


def _cell(row: dict[str, Any]) -> str:
    from engine.studies.comparison import KEYS

    parts = [f"{row[name]:.3g}" if name == "rate" else str(row[name]) for name in KEYS if row[name] is not None]
    return " ".join(parts)


def _view(title: str, frame: pl.DataFrame) -> Table:
    view = Table(title=title)
    for name in frame.columns:
        view.add_column(name.replace("_", " "), justify="right" if frame[name].dtype.is_numeric() else "left")
    for row in frame.iter_rows():
        view.add_row(*(_text(value) for value in row))
    return view


def _text(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
