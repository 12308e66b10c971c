"""`analyze`: stability, agreement, controls, groups, domains, tasks, protocols, and a verdict per selector."""

from __future__ import annotations

import argparse
from typing import Any

import polars as pl

from engine.commands import common, options, runners
from engine.commands.listed import COMMANDS
from engine.records.manifest import check_folder
from engine.results.store import Store
from engine.run.audit_plan import OF_ANALYZE, PRESETS, AuditPlan, default_preset, for_model, preset
from engine.run.field_types import Names
from engine.run.score_plan import SHIPPED
from engine.studies.base import ANALYSES
from engine.studies.protocols.protocol_claims import summary as protocols_summary

_ALL = "all"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "analyze",
        help=COMMANDS["analyze"],
        description="Writes one table per analysis beside scores.safetensors and manifest.json. Every measured cell "
        "is kept: the same command resumes, and analyses share what they have in common.",
        epilog=f"analyses: {', '.join(ANALYSES.offered())}; `all` runs every one that can be run here "
        "and says why the others were skipped.",
    )
    common.add_model(parser)
    parser.add_argument("analyses", metavar="ANALYSIS", nargs="*", default=[_ALL], help="one or more, or all (default)")
    parser.add_argument(
        "--preset",
        help="; ".join(f"{name}: {one.note}" for name, one in PRESETS.items())
        + f" (default: {default_preset('')}; shipped model: {default_preset(SHIPPED)})",
    )
    plans = {name: preset(name) for name in (default_preset(""), *PRESETS)}
    plans["shipped model"] = for_model(preset(default_preset("")), SHIPPED)
    options.add_options(parser, plans, OF_ANALYZE)
    runners.add_runner(parser)
    common.add_run(parser, run)


def run(args: argparse.Namespace) -> None:
    from engine.studies.audit.analyses import run_analyses
    from engine.studies.audit.inputs import AuditInputs
    from engine.studies.audit.preflight import fitting

    everything = _ALL in args.analyses
    known = Names("analysis", lambda: [*ANALYSES.offered(), _ALL])
    names = ANALYSES.offered() if everything else known(",".join(args.analyses), "ANALYSIS")
    plan = audit_plan(args)
    with Store(args.store) as store:
        fit = fitting(common.sketch(args), plan, names, store, named=args.selectors is not None, skip=everything)
        common.say_left_out(fit.left_out)
        folder = common.output_folder(args, store)
        loaded = common.load(args)
        check_folder(folder, loaded.fingerprint)
        with runners.cell_runner(args, store, loaded) as (runner, progress):
            audit = AuditInputs(loaded, fit.plan, store, progress)
            report = run_analyses(audit, fit.analyses, folder, runner, skip=everything)
    report["skipped"] = fit.skipped | report["skipped"]
    notes = common.say_notes(folder)
    if common.as_json(args, {"folder": str(folder), "notes": notes, "left_out": fit.left_out, **report}):
        return
    times = ((name, f"{seconds:.1f}") for name, seconds in report["done"].items())
    common.print_table("time spent, seconds (cells known before cost nothing)", ("analysis", "seconds"), times, texts=1)
    for name, reason in report["skipped"].items():
        common.out.print(f"skipped {name}: {reason}", markup=False)
    if "verdict" in report["done"]:
        verdicts = pl.read_parquet(folder / "verdicts.parquet", glob=False).iter_rows(named=True)
        columns = ("selector", "validity", "specific", "stability", "why")
        common.print_table("verdicts", columns, (_verdict(row) for row in verdicts))
    if "invariance" in report["done"]:
        controls = pl.read_parquet(folder / "invariance_verdicts.parquet", glob=False)
        lines = controls.select("selector", "invariance", "reasons").rows()
        common.print_table("exact controls", ("selector", "ranking", "why"), lines)
    if "protocols" in report["done"]:
        told = pl.read_parquet(folder / "protocols_claims.parquet", glob=False)
        common.print_table(
            "claims over all protocols", ("verdict", "claim"), told.select("claim_verdict", "claim").rows()
        )
        common.out.print(protocols_summary(told), markup=False)
    common.out.print(f"written to {folder}; look at it with: selector-audit dashboard", markup=False)


def audit_plan(args: argparse.Namespace) -> AuditPlan:
    """The preset with what the arguments say otherwise."""
    base = preset(args.preset or default_preset(args.model))
    return options.plan_from(args, for_model(base, args.model))


def _verdict(row: dict[str, Any]) -> tuple[str, ...]:
    validity = f"{row['validity']} (stable but invalid)" if row["stable_but_invalid"] else row["validity"]
    return row["selector"], validity, row["specific"], row["stability"], row["reasons"]
