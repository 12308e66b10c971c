"""`estimate`: passes, tokens, FLOPs, peak memory and time of a planned run, before it starts.

Counts what `score` and `sweep` take with the same options, and the replies of a refusal experiment under one edit (its
default prompts), from the model's shapes and by the code that the run itself uses; with --preset and no stage the
scores and the analyses of `analyze --preset`, as far as they rest neither on results nor on scores of further texts.
Cells that the store knows already are counted too. The time is that of the matrix products alone, at their speed here:
a lower bound. What a refusal grid adds, its command says before it begins."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from engine.commands import common, options
from engine.run.audit_plan import OF_SWEEP, PRESETS, SHIPPED, AuditPlan, for_model, preset
from engine.run.field_types import Names
from engine.run.refusal_plan import default_plan

if TYPE_CHECKING:
    from engine.run.run_estimate import Estimate

STAGES = ("score", "sweep", "replies")  # as in `engine.run.run_estimate`, which needs torch


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser)
    parser.add_argument(
        "stages", metavar="STAGE", nargs="*", help=f"of {', '.join(STAGES)} (default: all; with --preset what it runs)"
    )
    options.add_preset(parser, "the settings of `score` and `sweep`; with it, without STAGE, its analyses")
    plans = {"": AuditPlan(), **{name: one.plan for name, one in PRESETS.items()}}
    plans["shipped model"] = for_model(AuditPlan(), SHIPPED)
    options.add_options(parser, plans, OF_SWEEP)
    common.add_device(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from dataclasses import asdict, replace
    from functools import partial

    import torch

    from engine.models.memory import room_on
    from engine.run.run_estimate import estimate, fits_in, flops_per_second
    from engine.run.scoring import impossible, remaining
    from engine.studies.audit.audit_inputs import AuditInputs
    from engine.studies.base import AUDIT, all_analyses, whole_plan
    from engine.studies.conduct import from_shapes

    stages = Names("stage", lambda: STAGES)(",".join(args.stages), "STAGE") if args.stages else STAGES
    base = preset(args.preset) if args.preset else AuditPlan()
    names = () if args.stages or not args.preset else PRESETS[args.preset].analyses or tuple(all_analyses())
    plan = options.plan_from(args, whole_plan(for_model(base, args.model), AUDIT))
    sketch = common.sketch(args)
    left_out = impossible(sketch, plan.scoring.selectors)
    selectors = remaining(plan.scoring.selectors, left_out, named=args.selectors is not None)
    plan = replace(plan, scoring=replace(plan.scoring, selectors=selectors))
    speed = flops_per_second(sketch)
    if names:
        ahead = from_shapes(AuditInputs, partial(common.sketch, args), plan, names, skip=True)
        found, partly, skipped = ahead.of, ahead.partly, ahead.skipped
    else:
        found, partly, skipped = estimate(sketch, plan, default_plan(args.model), stages), (), {}
    free = room_on(torch.device(found.device)).free
    common.say_left_out(left_out)
    answer = {
        **asdict(found), "peak_bytes": found.peak_bytes, "host_bytes": found.host_bytes, "free_bytes": free,
        "fits": fits_in(found.peak_bytes, free), "flops": found.flops, "flops_per_second": speed,
        "seconds": found.flops / speed, "left_out": left_out, "analyses": names, "partly": partly,
        "skipped": skipped,
    }  # fmt: skip
    if not common.as_json(args, answer):
        _show(found, free, speed)
        if names:
            rest = f"; of {', '.join(partly)} only what needs no result and no scores of further texts" * bool(partly)
            counted = [name for name in names if name not in skipped]
            common.out.print(f"counted: {', '.join(counted) or 'scores'}{rest}")
            for name, reason in skipped.items():
                common.out.print(f"skipped {name}: {reason}")


def _show(found: Estimate, free: int, speed: float) -> None:
    from engine.run.run_estimate import GIB, fits_in
    from engine.run.runner import told

    columns = ("stage", "what", "passes", "batch", "tokens", "TFLOP", "+GiB", "time")
    rows = (
        (
            *(one.stage, one.what, f"{one.passes:,}", f"{one.batch:,}", f"{one.tokens:,}"),
            *(f"{one.flops / 1e12:,.3g}", f"{one.peak_bytes / GIB:.2f}", told(one.flops / speed)),
        )
        for one in found.work
    )
    title = f"{found.model} in {found.dtype} on {found.device} (+GiB: beside the weights; time: of the products alone)"
    common.print_table(title, columns, rows, texts=2)
    fit = "fits" if fits_in(found.peak_bytes, free) else "does not fit at once"
    common.out.print(
        f"{found.weight_bytes / GIB:.2f} GiB of weights; at most {found.peak_bytes / GIB:.2f} GiB at once, "
        f"{free / GIB:.1f} GiB free: {fit}"
    )
    if found.host_bytes:
        common.out.print(
            f"removed rows take up to {found.host_bytes / GIB:.2f} GiB more; they go to the host where the device has "
            "too little room for them"
        )
    common.out.print(
        f"in all {found.flops / 1e12:,.3g} TFLOP: {told(found.flops / speed)} at {speed / 1e12:.3g} TFLOP/s, the speed "
        "of this model's matrix products here; a run takes longer"
    )
