"""`refusal evaluate`: held-out prompts and utility, before and after every edit."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.commands.refusal import stage
from engine.records.errors import InputError
from engine.run.field_types import parts
from engine.studies.base import StudyInfo

if TYPE_CHECKING:
    from engine.data.prompt_sets import PromptSet
    from engine.judges.base import Judge
    from engine.measures.harness_tasks import HarnessTask


def add_options(parser: argparse.ArgumentParser, info: StudyInfo) -> None:
    stage.add_options(parser, info)
    parser.set_defaults(run=lambda args: _run(args, info))
    add_sets(parser)


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
    from engine.measures.harness_tasks import utility_tasks

    sets = read_prompt_sets(parts(args.sets), args.set_prompts)
    return sets, utility_tasks(parts(args.utility), args.utility_items) if args.utility else []


def _run(args: argparse.Namespace, info: StudyInfo) -> None:
    from engine.studies.refusal.transfer import Evaluated

    sets, tasks = sets_and_tasks(args)
    judges = _judges(args)
    stage.conduct_stage(
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
