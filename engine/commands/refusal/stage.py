"""`refusal STAGE`: any stage by itself, as it is registered, with the settings that it reads; `refusal evaluate` asks
held-out prompts and utility besides. And what stages and `refusal run` share: options, and the run they describe."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.commands import common, options
from engine.edits.contrasts import read_spec
from engine.judges.base import UNJUDGED, Judge, open_judges
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.audit_plan import SHIPPED
from engine.run.field_types import parts
from engine.run.refusal_plan import COMPOSED_DOMAINS, RefusalPlan, default_plan, demo_plan
from engine.studies.base import REFUSAL, Study, StudyInfo, Tables, plan_type, whole_plan

if TYPE_CHECKING:
    from engine.data.prompt_sets import PromptSet
    from engine.measures.harness import HarnessTask
    from engine.run.runner import Results, Runner
    from engine.studies.conduct import Maker
    from engine.studies.refusal.refusal_inputs import RefusalInputs

_DOMAINS = {"compose": COMPOSED_DOMAINS}  # the default of --domains


def add_options(
    parser: argparse.ArgumentParser,
    reads: Collection[str] = (),
    *,
    domains: tuple[str, ...] | None = None,
    measures: bool = True,
    more: Collection[str] = (),
) -> None:
    """The options of these fields of the plan, () for all. domains: their default.
    measures: False for a stage without edits to measure. more: groups that only `--help-all` tells of."""
    common.add_model(parser)
    whole = plan_type(REFUSAL)
    cases = {"": whole(domains=domains), "shipped model": replace(whole_plan(demo_plan(), REFUSAL), domains=domains)}
    options.add_options(parser, cases, reads=reads, more=more)
    if domains:
        parser.set_defaults(domains=",".join(domains))
    if measures:
        common.add_runner(parser)
    else:
        parser.set_defaults(shard=None, runner=common.LOCAL, workers=None)
    common.add_run(parser)


@contextmanager
def experiment(
    args: argparse.Namespace, names: Sequence[str], judge: Judge | None = None, *, quiet: bool = False
) -> Iterator[tuple[RefusalInputs, Path, Runner]]:
    """The run and the results folder that the arguments describe, and the runner, with a progress bar.
    names: the stages. judge: the plan's own, where it is open already. quiet: the command says itself what is to
    compute. What can be told without weights is told before any is fetched."""
    from engine.studies.conduct import fitting
    from engine.studies.refusal.refusal_inputs import RefusalInputs

    plan = plan_of(args)
    with Store(args.store) as store:
        fit = fitting(RefusalInputs, common.sketch(args), plan, names, store, named=args.selectors is not None)
    plan = fit.plan
    common.say_left_out(fit.left_out)
    judge = judge or common.one_judge(plan.judge, args.device)
    with Store(args.store) as store:
        folder, loaded = common.folder_and_model(args, store)
        with common.cell_runner(args, store, loaded, quiet=quiet) as (runner, progress):
            yield RefusalInputs(loaded, plan, store, judge, progress, runner.shared), folder, runner
        say_unjudged(runner.results)
        common.say_notes(folder)


def say_unjudged(results: Results) -> None:
    """How many replies behind the rates the judge could not judge."""
    from engine.judges.refusals import Refused

    refused = results.of(Refused)
    unjudged, replies = sum(one.unjudged for one in refused), sum(len(one.refused) for one in refused)
    thinking = [one.still_thinking for one in refused]
    if any(thinking):
        more = "at least " if None in thinking else ""
        common.err.print(
            f"{more}{sum(filter(None, thinking)):,} of {replies:,} replies never came out of their thinking part: they "
            "count as unfinished, and as not refused; --reply-tokens allows longer ones"
        )
    if unjudged:
        common.err.print(f"{unjudged:,} of {replies:,} replies {UNJUDGED}")


def plan_of(args: argparse.Namespace) -> RefusalPlan:
    """The model's default plan with what the arguments say otherwise; whatever is wrong in it is an `InputError`."""
    if args.pairs is None and args.model != SHIPPED:
        raise InputError(
            "there are no prompt pairs for this model; give --pairs FILE with CAST's condition_multiple.json or a "
            ".jsonl file with risk and base, or --pairs demo"
        )
    return options.plan_from(args, whole_plan(default_plan(args.model), REFUSAL))


def say_masks(args: argparse.Namespace, folder: Path, table: str) -> None:
    """Where the masks of the points are, and the commands that take one of them, to be typed as they stand."""
    from engine.studies.refusal.mask_outputs import kept_masks

    masks = list(kept_masks(folder, table).values())
    if not masks:
        common.out.print(f"written to {folder}; no cell is within the limits, so there is no mask")
        return
    common.out.print(f"written to {folder}, with the mask of each point ({masks[0].name}, …); next:")
    shown = min(masks, key=lambda path: (read_spec(path)["rescue"], read_spec(path)["selector"] == "random"))
    for words in next_commands(args, shown):
        common.out.print(f"  {shlex.join(words)}")


def next_commands(args: argparse.Namespace, mask: Path) -> list[list[str]]:
    """`refusal chat` and `export` of a mask, asked as this command asks; a rescue with the limit that it meets."""
    spec = read_spec(mask)
    given: dict[str, object] = {
        setting.option: getattr(args, name)
        for name, setting in getattr(args, options.KEPT).items()
        if setting.field in options.MEASURED and getattr(args, name) not in (None, "")
    }
    if spec["rescue"]:
        given["--benign-limit"] = f"{spec['benign_cap']:g}"
    usual = {"revision": None, "device": "auto", "dtype": "auto", "device_map": None, "store": None}
    loading = {name: getattr(args, name) for name in usual if getattr(args, name) != usual[name]}
    given |= {f"--{name.replace('_', '-')}": value for name, value in loading.items()}
    asked = [args.model, "--mask", str(mask), *(str(one) for pair in given.items() for one in pair)]
    points = mask.with_name("operating_points.parquet")
    record = ["--record", str(points)] if spec["table"] == points.stem else []
    out = ["--out", mask.stem.removeprefix("mask-")]
    thinking = ["--thinking"] if args.thinking else []
    return [
        ["selector-audit", "refusal", "chat", *asked, *thinking],
        ["selector-audit", "export", *asked, *record, *out],
    ]


def dashboard_command(args: argparse.Namespace, folder: Path) -> str:
    """The dashboard on this run: the store that holds it, or its own folder."""
    store = folder if args.out else args.store
    return shlex.join(["selector-audit", "dashboard", *(["--store", str(store)] if store else [])])


def add_stage_options(parser: argparse.ArgumentParser, info: StudyInfo) -> None:
    """The options of a stage: those of the settings that it reads."""
    conducted = evaluate if info.id == "evaluate" else conduct_stage
    parser.set_defaults(run=lambda args: conducted(args, info))
    add_options(parser, info.settings, domains=_DOMAINS.get(info.id), measures=info.measures)
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

    with experiment(args, [info.id], judge) as (run, folder, runner):
        makers = {info.id: maker} if maker else {}
        run_studies(run, [info.id], folder, runner, makers=makers, begun=begun, finished=finished)
        [(study, tables)] = outcome
        answer = study.answer(run, runner.results, tables, folder)
    if common.as_json(args, {"folder": folder} | answer.record):
        return
    common.say(answer.text)
    if study.masks_of in tables:
        say_masks(args, folder, study.masks_of)
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
