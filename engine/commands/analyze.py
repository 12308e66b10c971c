"""`analyze`: stability, agreement, depth, controls, groups, domains, downstream tasks, and a verdict per selector."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.table import Table

from engine.commands import common
from engine.errors import InputError
from engine.records import check_folder
from engine.store import Store

if TYPE_CHECKING:
    from engine.analysis.plan import AuditPlan

_ALL = "all"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "analyze",
        help="is a selector faithful, stable, does it agree with others; with a verdict per selector",
        description="Writes one table per analysis beside scores.safetensors and manifest.json. Every measured cell "
        "is kept: the same command resumes, and analyses share what they have in common.",
        epilog="analyses: sweep, gap, seeds, differences, stability, agreement, depth, controls, rank-distribution, "
        "dangerous, domain, downstream, verdict; `all` runs every one that can be run here and says why the others "
        "were skipped.",
    )
    common.add_model(parser)
    parser.add_argument(
        "analyses", metavar="ANALYSIS", nargs="*", default=[_ALL], help="one or more, or all (default)"
    )
    parser.add_argument(
        "--preset", help="paper (the paper's settings; default), quick (less text, fewer rates), "
        "demo (default for the shipped model)",
    )  # fmt: skip
    common.add_scoring(parser, of_preset=True)
    parser.add_argument("--eval-corpus", help="evaluation text (default: the test part of --corpus)")
    parser.add_argument("--eval-samples", type=int, help="evaluation windows (default: the preset's)")
    parser.add_argument("--eval-length", type=int, help="tokens per window (default: the preset's)")
    parser.add_argument("--sizes", help="calibration sizes of `stability`, as 8,16,32")
    parser.add_argument("--control-rates", help="rates of `controls`, as 10%%,30%%")
    parser.add_argument("--domain-corpus", help="second calibration text of `domain`")
    parser.add_argument(
        "--downstream-tasks", help="folder with the task files of `downstream` (default: from the hub)"
    )
    parser.add_argument("--downstream-items", type=int, help="items per task (default: the preset's)")
    common.add_device(parser)
    common.add_storage(parser)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.analysis.audit import Audit
    from engine.analysis.run import ANALYSES, run_analyses

    everything = _ALL in args.analyses
    names = (
        list(ANALYSES)
        if everything
        else list(common.names(",".join(args.analyses), "analysis", [*ANALYSES, _ALL]))
    )
    plan = audit_plan(args)
    with Store(args.store) as store:
        folder = common.output_folder(args, store)
        loaded = common.load(args)
        check_folder(folder, loaded.fingerprint)
        with common.progress_bar(args) as progress:
            report = run_analyses(Audit(loaded, plan, store, progress), names, folder, skip=everything)
    if args.json:
        common.print_json({"folder": str(folder), **report})
        return
    common.out.print(_times(report))
    for name, reason in report["skipped"].items():
        common.out.print(f"skipped {name}: {reason}", markup=False)
    if "verdict" in report["done"]:
        common.out.print(_verdicts(folder))
    common.out.print(f"written to {folder}; look at it with: selector-audit dashboard", markup=False)


def audit_plan(args: argparse.Namespace) -> AuditPlan:
    """The preset with what the arguments say otherwise."""
    from engine.analysis.plan import SECOND_CORPUS, preset
    from engine.scores import default_corpus
    from engine.selectors import available_selectors

    shipped = args.model == "demo"
    plan = preset(args.preset or ("demo" if shipped else "paper"))
    corpus = args.corpus or (default_corpus(args.model) if shipped else None)
    scoring = _given(
        corpus=corpus,
        samples=common.at_least("--samples", args.samples, 1),
        length=common.at_least("--max-length", args.max_length, 2),
        seeds=common.seeds(args.seeds) if args.seeds else None,
        objective=args.objective,
        batch_size=common.at_least("--batch-size", args.batch_size, 1),
    )
    if args.selectors:
        known = [selector.id for selector in available_selectors()]
        scoring["selectors"] = common.names(args.selectors, "selector", known)
    changes = _given(
        eval_corpus=_corpus("--eval-corpus", args.eval_corpus) or corpus,
        eval_samples=common.at_least("--eval-samples", args.eval_samples, 1),
        eval_length=common.at_least("--eval-length", args.eval_length, 2),
        stability_sizes=_sizes(args.sizes),
        control_rates=common.rates(args.control_rates) if args.control_rates else None,
        domain_corpus=_corpus("--domain-corpus", args.domain_corpus) or (SECOND_CORPUS if shipped else None),
        downstream_tasks=_existing("--downstream-tasks", args.downstream_tasks),
        downstream_items=common.at_least("--downstream-items", args.downstream_items, 1),
    )
    return replace(plan, scoring=replace(plan.scoring, **scoring), **changes)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _corpus(option: str, name: str | None) -> str | None:
    """A corpus by its name or as a file that is there: a slip of the pen shows before hours of scoring."""
    from engine.corpora import available_corpora

    return name if name is None or name in available_corpora() else _existing(option, name)


def _existing(option: str, path: str | None) -> str | None:
    if path is not None and not Path(path).expanduser().exists():
        raise InputError(
            f"{option}: there is no {path}; give a file or folder that exists, or a corpus by its name"
        )
    return path


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if not text:
        return None
    sizes = tuple(sorted(set(common.integers(text, "--sizes"))))
    if sizes[0] < 1 or len(sizes) < 2:
        raise InputError(f"--sizes needs at least two sizes, each 1 or more, got {text!r}; write 8,16,32")
    return sizes


def _times(report: dict[str, Any]) -> Table:
    view = Table(title="time spent, seconds (cells known before cost nothing)")
    view.add_column("analysis")
    view.add_column("seconds", justify="right")
    for name, seconds in report["done"].items():
        view.add_row(name, f"{seconds:.1f}")
    return view


def _verdicts(folder: Path) -> Table:
    view = Table(title="verdicts")
    for column in ("selector", "validity", "stability", "why"):
        view.add_column(column)
    table = pl.read_parquet(folder / "verdicts.parquet")
    for row in table.iter_rows(named=True):
        name = f"{row['validity']} (stable but invalid)" if row["stable_but_invalid"] else row["validity"]
        view.add_row(row["selector"], name, row["stability"], row["reasons"])
    return view
