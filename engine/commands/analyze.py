"""`analyze`: stability, agreement, controls, groups, domains, tasks, protocols, and a verdict per selector.

Writes one table per analysis beside scores.safetensors and manifest.json. Every measured cell is kept: the same command
resumes, and analyses share what they have in common."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.commands import common, options
from engine.records.hashing import Json
from engine.results.store import Store
from engine.run.audit_plan import OF_ALL, PRESETS, SHIPPED, AuditPlan, default_preset, for_model, preset
from engine.run.claims_plan import SHIPPED as SHIPPED_CLAIMS, selectors_of
from engine.run.field_types import Names
from engine.studies.base import ANALYSES, AUDIT, Answer, Study, Tables, all_analyses, analyze_groups, whole_plan

if TYPE_CHECKING:
    from engine.studies.conduct import Fit

_ALL, _CLAIMS_OF = "all", "claims-of"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        f"analyses: {', '.join(ANALYSES.offered())}; `all` runs every one but claims-of that can be run here "
        "and says why the others were skipped."
    )
    common.add_model(parser)
    few = ", ".join(PRESETS["quick"].analyses)
    parser.add_argument(
        "analyses", metavar="ANALYSIS", nargs="*", help=f"one or more, or all (default: all; preset quick: {few})"
    )
    options.add_preset(parser, f"{default_preset('')}; shipped model: {default_preset(SHIPPED)}")
    plans = {name: whole_plan(preset(name), AUDIT) for name in (default_preset(""), *PRESETS)}
    plans["shipped model"] = for_model(plans[default_preset("")], SHIPPED)
    groups = analyze_groups()
    options.add_options(parser, plans, groups, more=[group for group in groups if group not in OF_ALL])
    common.add_runner(parser)
    common.add_run(parser)


def run(args: argparse.Namespace) -> None:
    claims = [one for one in args.analyses if one in SHIPPED_CLAIMS or one.endswith(".toml")]
    if claims and _CLAIMS_OF in args.analyses:
        args.analyses = [one for one in args.analyses if one not in claims]
        args.claims = ",".join([*([args.claims] if args.claims else []), *claims])
    plan = audit_plan(args)
    asked = args.analyses or list(PRESETS[args.preset or default_preset(args.model)].analyses) or [_ALL]
    known = Names("analysis", lambda: [*ANALYSES.offered(), _ALL])
    names = all_analyses() if _ALL in asked else known(",".join(asked), "ANALYSIS")
    if list(names) == [_CLAIMS_OF] and args.selectors is None:  # claims name theirs
        plan = replace(plan, scoring=replace(plan.scoring, selectors=selectors_of(plan.published_claims)))
    fit, report, folder, answers = measured(args, plan, names, skip=_ALL in asked or not args.analyses)
    notes = common.say_notes(folder)
    if common.as_json(args, {"folder": str(folder), "notes": notes, "left_out": fit.left_out, **report}):
        return
    times = ((name, f"{seconds:.1f}") for name, seconds in report["done"].items())
    common.print_table("time spent, seconds (cells known before cost nothing)", ("analysis", "seconds"), times, texts=1)
    for name, reason in report["skipped"].items():
        common.out.print(f"skipped {name}: {reason}")
    for name, answer in answers.items():
        if name != "sweep":  # whose curves are the command `sweep`'s to say
            common.say(answer.text)
    common.out.print(f"written to {folder}; look at it with: selector-audit dashboard")


def measured(
    args: argparse.Namespace, plan: AuditPlan, names: Sequence[str], *, skip: bool = False
) -> tuple[Fit, Json, Path, dict[str, Answer]]:
    """Runs analyses. returns what can be done, the report of `run_studies`, the folder, and what each says."""
    from engine.studies.audit.audit_inputs import AuditInputs
    from engine.studies.conduct import fitting, run_studies

    answers: dict[str, Answer] = {}
    with Store(args.store) as store:
        sketch, named = common.sketch(args), args.selectors is not None
        fit = fitting(AuditInputs, sketch, plan, names, store, named=named, skip=skip)
        common.say_left_out(fit.left_out)
        folder, loaded = common.folder_and_model(args, store)
        with common.cell_runner(args, store, loaded) as (runner, progress):
            audit = AuditInputs(loaded, fit.plan, store, progress)

            def finished(name: str, study: Study[Any] | None, tables: Tables, seconds: float) -> None:
                if study is not None:
                    answers[name] = study.answer(audit, runner.results, tables, folder)

            report = run_studies(audit, fit.studies, folder, runner, skip=skip, finished=finished)
    report["skipped"] = fit.skipped | report["skipped"]
    return fit, report, folder, answers


def audit_plan(args: argparse.Namespace) -> AuditPlan:
    """The preset with what the arguments say otherwise."""
    base = preset(args.preset or default_preset(args.model))
    return options.plan_from(args, whole_plan(for_model(base, args.model), AUDIT))
