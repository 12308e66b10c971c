"""What the stages of a refusal experiment share: their options, and the run that these describe."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.commands import common, edit_options, options, runners
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.refusal_plan import RefusalPlan, default_plan, demo_plan
from engine.run.score_plan import SHIPPED
from engine.studies.base import REFUSAL, plan_type, whole_plan

if TYPE_CHECKING:
    from engine.judges.base import Judge
    from engine.run.runner import Results, Runner
    from engine.studies.refusal.inputs import RefusalInputs


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
        runners.add_runner(parser)
    else:
        parser.set_defaults(shard=None, runner=runners.LOCAL, workers=None)
    common.add_run(parser)


@contextmanager
def experiment(
    args: argparse.Namespace, names: Sequence[str], judge: Judge | None = None, *, quiet: bool = False
) -> Iterator[tuple[RefusalInputs, Path, Runner]]:
    """The run and the results folder that the arguments describe, and the runner, with a progress bar.
    names: the stages. judge: the plan's own, where it is open already. quiet: the command says itself what is to
    compute. What can be told without weights is told before any is fetched."""
    from engine.studies.conduct import fitting
    from engine.studies.refusal.inputs import RefusalInputs

    plan = plan_of(args)
    with Store(args.store) as store:
        fit = fitting(RefusalInputs, common.sketch(args), plan, names, store, named=args.selectors is not None)
    plan = fit.plan
    common.say_left_out(fit.left_out)
    judge = judge or common.one_judge(plan.judge, args.device)
    with Store(args.store) as store:
        folder, loaded = common.folder_and_model(args, store)
        with runners.cell_runner(args, store, loaded, quiet=quiet) as (runner, progress):
            yield RefusalInputs(loaded, plan, store, judge, progress, runner.shared), folder, runner
        say_unjudged(runner.results)
        common.say_notes(folder)


def say_unjudged(results: Results) -> None:
    """How many replies behind the rates the judge could not judge."""
    from engine.judges.base import UNJUDGED
    from engine.judges.refusals import Refused

    found = results.of(Refused)
    unjudged, replies = sum(one.unjudged for one in found), sum(len(one.refused) for one in found)
    thinking = [one.still_thinking for one in found]
    if any(thinking):
        some = "at least " if None in thinking else ""
        common.err.print(
            f"{some}{sum(filter(None, thinking)):,} of {replies:,} replies never came out of their thinking part: they "
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
    from engine.edits.mask_files import read_spec
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
    from engine.edits.mask_files import read_spec

    spec = read_spec(mask)
    given: dict[str, object] = {
        setting.option: getattr(args, name)
        for name, setting in getattr(args, options.KEPT).items()
        if setting.field in edit_options.MEASURED and getattr(args, name) not in (None, "")
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
