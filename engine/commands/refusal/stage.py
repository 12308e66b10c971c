"""`refusal STAGE`: any stage by itself, as it is registered, with the settings that it reads; `refusal evaluate` asks
held-out prompts and utility besides."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from engine.commands import common
from engine.commands.refusal import options
from engine.records.errors import InputError
from engine.run.field_types import parts
from engine.run.refusal_plan import COMPOSED_DOMAINS
from engine.studies.base import Study, StudyInfo, Tables

if TYPE_CHECKING:
    from engine.data.prompt_sets import PromptSet
    from engine.judges.base import Judge
    from engine.measures.harness import HarnessTask
    from engine.studies.conduct import Maker

_DOMAINS = {"compose": COMPOSED_DOMAINS}  # the default of --domains


def add_options(parser: argparse.ArgumentParser, info: StudyInfo) -> None:
    """The options of a stage: those of the settings that it reads."""
    conducted = evaluate if info.id == "evaluate" else conduct_stage
    parser.set_defaults(run=lambda args: conducted(args, info))
    options.add_options(parser, info.settings, domains=_DOMAINS.get(info.id), measures=info.measures)
    if conducted is evaluate:
        add_sets(parser)


def conduct_stage(
    args: argparse.Namespace, info: StudyInfo, *, judge: Judge | None = None, maker: Maker | None = None
) -> None:
    """Runs the stage, and says what came out. judge: the plan's own, where it is open already; maker: see
    `run_studies`."""
    from engine.studies.conduct import run_studies

    outcome: list[tuple[Study[Any], Tables]] = []

    def begun(study: Study[Any]) -> None:
        text = study.announcement(run)
        if text and not args.json:
            common.err.print(text, soft_wrap=True)

    def finished(name: str, study: Study[Any] | None, tables: Tables, seconds: float) -> None:
        outcome.append((study or info.make(run), tables))

    with options.experiment(args, [info.id], judge) as (run, folder, runner):
        makers = {info.id: maker} if maker else {}
        run_studies(run, [info.id], folder, runner, makers=makers, begun=begun, finished=finished)
        [(study, tables)] = outcome
        answer = study.answer(run, runner.results, tables, folder)
    if common.as_json(args, {"folder": folder} | answer.record):
        return
    common.say(answer.text)
    if study.masks_of in tables:
        options.say_masks(args, folder, study.masks_of)
    elif tables:
        common.out.print(f"written to {folder}")


def add_sets(parser: argparse.ArgumentParser) -> None:
    """Which prompts and tasks are asked besides the held-out pairs."""
    parser.add_argument(
        "--sets",
        metavar="SET,…",
        help="further prompts: sorrybench, orbench, xstest from the Hugging Face hub (NAME@REVISION: at that branch, "
        "tag or commit; the commit is recorded either way), or NAME=FILE for a CSV or JSONL file, where NAME may also "
        "be harmful or harmless",
    )
    parser.add_argument("--set-prompts", type=int, metavar="N", help="the first N prompts of each set")
    parser.add_argument(
        "--judges",
        metavar="JUDGE,…",
        help="several judges on the same replies, as in embedded,minos: their rates, agreement and Cohen's kappa "
        "(judge_pairs.parquet); the rates of the other tables are those of the first, in the place of --judge",
    )
    parser.add_argument("--utility", metavar="TASK,…", help="mmlu, gsm8k, ifeval (default: none)")
    parser.add_argument(
        "--utility-items", type=int, metavar="N", help="the first N items of each task (of each of MMLU's 57)"
    )


def sets_and_tasks(args: argparse.Namespace) -> tuple[list[PromptSet], list[HarnessTask]]:
    from engine.data.prompt_sets import read_prompt_sets
    from engine.measures.harness import utility_tasks

    sets = read_prompt_sets(parts(args.sets), args.set_prompts)
    return sets, utility_tasks(parts(args.utility), args.utility_items) if args.utility else []


def evaluate(args: argparse.Namespace, info: StudyInfo) -> None:
    from engine.studies.refusal.transfer import Evaluated

    sets, tasks = sets_and_tasks(args)
    judges = _judges(args)
    conduct_stage(
        args, info, judge=judges[0] if judges else None, maker=lambda run: Evaluated(run, sets, tasks, judges[1:])
    )


def _judges(args: argparse.Namespace) -> list[Judge]:
    """Those of `--judges`; the first is the run's own."""
    from engine.judges.base import open_judges

    names = parts(args.judges)
    if not names:
        return []
    if len(set(names)) < 2:
        raise InputError(f"--judges compares two or more, got {args.judges!r}; give one alone with --judge")
    if args.judge and args.judge != names[0]:
        raise InputError(
            f"--judge {args.judge} and --judges {args.judges} name different first judges; leave --judge out"
        )
    args.judge = names[0]
    return open_judges(args.judges, args.device)
