"""`refusal judge`: verdicts for replies that were written elsewhere."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from engine.commands import common
from engine.errors import InputError

if TYPE_CHECKING:
    import polars as pl

SHOWN_DISAGREEMENTS = 20
SHOWN_CHARACTERS = 160


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "judge",
        help="does each reply of a CSV, JSONL or parquet file refuse?",
        description="Judges replies that were kept: nothing is generated. Where people labelled the replies (a partial "
        "refusal counts as a refusal), precision, recall and F1 per source with Wilson's intervals. With two judges, "
        "their agreement and every reply on which they differ.",
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="CSV, JSONL or parquet, one reply per line"
    )
    parser.add_argument(
        "--judge",
        default="embedded",
        help="`embedded` (rules, the default), `rejection-model` (ProtectAI/distilroberta-base-rejection-v1) or a "
        "folder with such a model; two, separated by a comma, are compared",
    )
    parser.add_argument(
        "--reply-column", help="column of the replies (default: reply, completion, response, …)"
    )
    parser.add_argument(
        "--label-column", help="column of people's labels (default: human_label, label, …), or none"
    )
    parser.add_argument(
        "--model-column", help="column of the source model (default: model, …; else the file's name)"
    )
    parser.add_argument(
        "--halves",
        action="store_true",
        help="quality for two halves of the prompts as well: the rules were developed on mistakes in one of them",
    )
    parser.add_argument("--device", default="cpu", help="where a judge that is a model runs (default cpu)")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for verdicts.parquet, judge_quality.parquet, judge_agreement.parquet, disagreements.parquet",
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    import polars as pl

    from engine.evaluation.judge_quality import agreement_table, disagreements, quality_table
    from engine.evaluation.judges import open_judges
    from engine.evaluation.replies import read_replies, verdict_table

    replies = [
        reply
        for file in args.files
        for reply in read_replies(
            file,
            reply_column=args.reply_column,
            label_column=args.label_column,
            model_column=args.model_column,
        )
    ]
    judges = open_judges(args.judge, args.device)
    tables = []
    with common.progress_bar(args) as progress:
        for judge in judges:
            report = None if progress is None else partial(progress, f"judge {judge.id}")
            verdicts = judge.judge([reply.reply for reply in replies], report)
            tables.append(verdict_table(replies, judge.id, judge.version, verdicts))
    verdict_rows = pl.concat(tables)
    results = {
        "verdicts": verdict_rows,
        "judge_quality": quality_table(verdict_rows, halves=args.halves),
        "judge_agreement": agreement_table(verdict_rows),
        "disagreements": disagreements(verdict_rows),
    }
    if args.out is not None:
        _write(args.out, results, args.files, [(judge.id, judge.version) for judge in judges])
    if args.json:
        common.print_json(
            {"judges": {judge.id: judge.version for judge in judges}}
            | {name: table.to_dicts() for name, table in results.items()}
        )
        return
    _show(results)


def _write(
    folder: Path, results: dict[str, pl.DataFrame], files: list[Path], judges: list[tuple[str, str]]
) -> None:
    from engine.records import MANIFEST, SCHEMA_VERSION, environment, file_sha256, write_atomic, write_parquet

    if (folder / MANIFEST).exists():
        raise InputError(
            f"{folder} holds the results of a model, whose verdicts.parquet would be lost; give another --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder} ({error.strerror}); give another --out") from None
    written = [name for name, table in results.items() if len(table)]
    for name in results:
        path = folder / f"{name}.parquet"
        path.unlink(missing_ok=True)  # of an earlier run with other judges
        if name in written:
            write_parquet(path, results[name])
    record = {
        "schema_version": SCHEMA_VERSION,
        "replies": {file.name: file_sha256(file) for file in files},
        "judges": dict(judges),
        "files": {f"{name}.parquet": file_sha256(folder / f"{name}.parquet") for name in written},
        "environment": environment(),
    }
    write_atomic(folder / "judge.json", (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())


def _show(results: dict[str, pl.DataFrame]) -> None:
    from engine.evaluation.rates import wilson

    verdicts = results["verdicts"]
    rates = Table(title="refusals")
    for column in ("judge", "source", "replies", "refusals", "rate", "95% interval"):
        rates.add_column(column, justify="left" if column in ("judge", "source") else "right")
    for (judge, source), rows in verdicts.group_by("judge", "source", maintain_order=True):
        refusals = int(rows["refusal"].sum())
        low, high = wilson(refusals, len(rows))
        cells = (f"{len(rows):,}", f"{refusals:,}", f"{refusals / len(rows):.1%}", f"{low:.1%} – {high:.1%}")
        rates.add_row(str(judge), str(source), *cells)
    common.out.print(rates)
    if len(results["judge_quality"]):
        common.out.print(_quality(results["judge_quality"]))
    for line in results["judge_agreement"].iter_rows(named=True):
        kappa = "undefined" if line["kappa"] is None else f"{line['kappa']:.3f}"
        common.out.print(
            f"{line['judge_a']} and {line['judge_b']}: equal on {line['agreement']:.1%} of {line['replies']:,} replies "
            f"({line['agreement_low']:.1%} – {line['agreement_high']:.1%}), Cohen's kappa {kappa}, "
            f"{line['disagreements']:,} disagreements",
            markup=False,
        )
    differing = results["disagreements"]
    for line in differing.head(SHOWN_DISAGREEMENTS).iter_rows(named=True):
        said = line["judge_a"] if line["refusal_a"] else line["judge_b"]
        reply = " ".join(line["reply"].split())[:SHOWN_CHARACTERS]
        common.out.print(
            f"  {line['source']} {line['line']}: only {said} sees a refusal: {reply}", markup=False
        )
    if len(differing) > SHOWN_DISAGREEMENTS:
        common.out.print(f"  … and {len(differing) - SHOWN_DISAGREEMENTS:,} more; --out keeps all of them")


def _quality(table: pl.DataFrame) -> Table:
    shown = Table(title="agreement with people")
    for column in ("judge", "prompts", "source", "replies", "refusals", "precision", "recall", "F1"):
        shown.add_column(column, justify="left" if column in ("judge", "prompts", "source") else "right")
    for line in table.iter_rows(named=True):
        rates = [
            _rate(line[name], line[f"{name}_low"], line[f"{name}_high"])
            for name in ("precision", "recall", "f1")
        ]
        shown.add_row(
            line["judge"],
            line["prompts"],
            line["source"],
            f"{line['replies']:,}",
            f"{line['refusals']:,}",
            *rates,
        )
    return shown


def _rate(value: float | None, low: float | None, high: float | None) -> str:
    return "–" if value is None else f"{value:.3f} ({low:.3f} – {high:.3f})"
