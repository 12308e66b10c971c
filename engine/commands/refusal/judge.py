"""`refusal judge`: verdicts for replies that were written elsewhere.

Judges replies that were kept: nothing is generated. Where people labelled the replies (a partial refusal counts as a
refusal), precision, recall and F1 per source with Wilson's intervals. With two judges, their agreement and every reply
on which they differ. `refusal evaluate --judge-quality` takes the table judge_quality and corrects its rates by it. A
column `finished` (true or false) says which replies were cut off at the limit of tokens. The embedded judge reads
English only: a reply that is clearly in another language is marked as not judged, counts as not refused, and is counted
beside the rates. Lines without a reply are in no rate and are counted apart."""

import argparse
import json
from pathlib import Path
from typing import Any

import polars as pl

from engine.commands import common, outputs
from engine.judges.base import UNJUDGED, judge_choices, open_judges, verdicts_on
from engine.run.refusal_plan import RefusalPlan
from engine.stats.uncertainty import wilson

SHOWN_DISAGREEMENTS = 20
SHOWN_CHARACTERS = 160


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="CSV, JSONL or parquet, one reply per line")
    parser.add_argument(
        "--judge", default=RefusalPlan.judge, help=f"{judge_choices()}; two, separated by a comma, are compared"
    )
    parser.add_argument("--reply-column", help="column of the replies (default: reply, completion, response, …)")
    parser.add_argument("--label-column", help="column of people's labels (default: human_label, label, …), or none")
    parser.add_argument(
        "--model-column",
        help="column of the source model, or of any kind of reply to tell apart, "
        "such as a category (default: model, …; else the file's name)",
    )
    parser.add_argument(
        "--halves", action="store_true",
        help="quality for two halves of the prompts as well: the rules were developed on mistakes in one of them",
    )  # fmt: skip
    parser.add_argument("--device", default="cpu", help="where a judge that is a model runs (default cpu)")
    tables = "verdicts.parquet, judge_quality.parquet, judge_agreement.parquet, disagreements.parquet"
    parser.add_argument("--out", type=Path, help=f"folder for {tables}")
    common.add_json(parser)
    parser.set_defaults(writes=outputs.judged)


def run(args: argparse.Namespace) -> None:
    from engine.judges.given_replies import joined, read_replies, verdict_table
    from engine.judges.quality import agreement_table, disagreements, quality_table

    replies = [
        reply
        for file in args.files
        for reply in read_replies(
            file, reply_column=args.reply_column, label_column=args.label_column, model_column=args.model_column
        )
    ]
    judges = open_judges(args.judge, args.device)
    tables = []
    with common.progress_bar(args) as progress:
        for judge in judges:
            verdicts = verdicts_on(judge, [reply.exchange for reply in replies], progress)
            tables.append(verdict_table(replies, judge.id, judge.version, verdicts))
    verdict_rows = joined(tables)
    results = {
        "verdicts": verdict_rows,
        "judge_quality": quality_table(verdict_rows, halves=args.halves),
        "judge_agreement": agreement_table(verdict_rows),
        "disagreements": disagreements(verdict_rows),
    }
    if args.out is not None:
        _write(args.out, results, args.files, [(judge.id, judge.version) for judge in judges])
    if not common.as_json(args, {"judges": {judge.id: judge.version for judge in judges}, **results}):
        _show(results)


def _write(folder: Path, results: dict[str, pl.DataFrame], files: list[Path], judges: list[tuple[str, str]]) -> None:
    from engine.records.files import make_folder, remove, write_atomic, write_parquet
    from engine.records.hashing import SCHEMA_VERSION, environment, file_sha256
    from engine.results.folders import marked

    outputs.check_judged_folder(folder, files)
    make_folder(folder)
    written = [name for name, table in results.items() if len(table)]
    for name in results:
        path = folder / f"{name}.parquet"
        if name in written:
            write_parquet(path, results[name], outputs.JUDGE_TABLE, marked(outputs.JUDGE_MARK))
        else:  # of an earlier run with other judges
            remove(path, outputs.JUDGE_TABLE)
    record = {
        "schema_version": SCHEMA_VERSION,
        "replies": {file.name: file_sha256(file) for file in files},
        "judges": dict(judges),
        "files": {f"{name}.parquet": file_sha256(folder / f"{name}.parquet") for name in written},
        "environment": environment(),
    }
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    write_atomic(folder / outputs.JUDGE_FILE, text.encode(), outputs.JUDGE_RECORD)


def _show(results: dict[str, pl.DataFrame]) -> None:
    from engine.judges.given_replies import cut_off, unjudged

    verdicts = results["verdicts"].drop_nulls("reply")
    _rates(verdicts)
    for (judge, source), rows in verdicts.group_by("judge", "source", maintain_order=True):
        if count := unjudged(rows):
            common.out.print(f"{judge}, {source}: {count:,} of {len(rows):,} replies {UNJUDGED}")
    of_one = results["verdicts"].filter(judge=results["verdicts"]["judge"][0])
    for (source,), of_source in of_one.group_by("source", maintain_order=True):
        rows = of_source.drop_nulls("reply")
        if missing := len(of_source) - len(rows):
            common.out.print(f"{source}: {missing:,} of {len(of_source):,} lines have no reply and are in no rate")
        if found := cut_off(rows):
            unknown = f"; of {len(rows) - found[1]:,} more it is not known" if found[1] < len(rows) else ""
            common.out.print(f"{source}: {found[0]:,} of {found[1]:,} replies were cut off{unknown}")
    if len(results["judge_quality"]):
        columns = ("judge", "prompts", "source", "replies", "refusals", "precision", "recall", "F1")
        lines = (_quality(line) for line in results["judge_quality"].iter_rows(named=True))
        common.print_table("agreement with people", columns, lines, texts=3)
    for line in results["judge_agreement"].iter_rows(named=True):
        kappa = "undefined" if line["kappa"] is None else f"{line['kappa']:.3f}"
        common.out.print(
            f"{line['judge_a']} and {line['judge_b']}: equal on {line['agreement']:.1%} of {line['replies']:,} replies "
            f"({line['agreement_low']:.1%} – {line['agreement_high']:.1%}), Cohen's kappa {kappa}, "
            f"{line['disagreements']:,} disagreements"
        )
    differing = results["disagreements"]
    for line in differing.head(SHOWN_DISAGREEMENTS).iter_rows(named=True):
        refusing = line["judge_a"] if line["refusal_a"] else line["judge_b"]
        reply = " ".join(line["reply"].split())[:SHOWN_CHARACTERS]
        common.out.print(f"  {line['source']} {line['line']}: only {refusing} sees a refusal: {reply}")
    if len(differing) > SHOWN_DISAGREEMENTS:
        common.out.print(f"  … and {len(differing) - SHOWN_DISAGREEMENTS:,} more; --out keeps all of them")


def _rates(verdicts: pl.DataFrame) -> None:
    """Share of refusals per judge and source; nothing where there is none."""
    shown = []
    for (judge, source), rows in verdicts.group_by("judge", "source", maintain_order=True):
        count = int(rows["refusal"].sum())
        low, high = wilson(count, len(rows))
        cells = (f"{len(rows):,}", f"{count:,}", f"{count / len(rows):.1%}", f"{low:.1%} – {high:.1%}")
        shown.append((str(judge), str(source), *cells))
    if shown:
        columns = ("judge", "source", "replies", "refusals", "rate", "95% interval")
        common.print_table("refusals", columns, shown, texts=2)


def _quality(line: dict[str, Any]) -> tuple[str, ...]:
    intervals = [[line[f"{name}{end}"] for end in ("", "_low", "_high")] for name in ("precision", "recall", "f1")]
    rates = ["–" if rate is None else f"{rate:.3f} ({low:.3f} – {high:.3f})" for rate, low, high in intervals]
    counts = [f"{line[name]:,}" for name in ("replies", "refusals")]
    return line["judge"], line["prompts"], line["source"], *counts, *rates
