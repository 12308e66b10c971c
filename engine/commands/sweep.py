"""`sweep`: LeRF/MoRF curves of the chosen selectors."""

from __future__ import annotations

import argparse

import polars as pl

from engine.commands import common, options, runners
from engine.commands.listed import COMMANDS
from engine.records.manifest import check_folder
from engine.results.folders import read_table
from engine.results.store import Store
from engine.run.audit_plan import OF_SWEEP, AuditPlan, for_model
from engine.run.score_plan import SHIPPED


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "sweep",
        help=COMMANDS["sweep"],
        description="Writes sweep.parquet: one row per selector, seed, order and rate with the NLL (nats per token), "
        "its standard error and the perplexity. Finished cells are kept: the same command resumes.",
    )
    common.add_model(parser)
    plans = {"": AuditPlan(), "shipped model": for_model(AuditPlan(), SHIPPED)}
    options.add_options(parser, plans, OF_SWEEP)
    runners.add_runner(parser)
    common.add_run(parser, run)


def run(args: argparse.Namespace) -> None:
    from engine.studies.audit.analyses import run_analyses
    from engine.studies.audit.inputs import AuditInputs
    from engine.studies.audit.preflight import fitting

    plan = options.plan_from(args, for_model(AuditPlan(), args.model))
    with Store(args.store) as store:
        fit = fitting(common.sketch(args), plan, ["sweep"], store, named=args.selectors is not None)
        common.say_left_out(fit.left_out)
        plan = fit.plan
        folder = common.output_folder(args, store)
        loaded = common.load(args)
        check_folder(folder, loaded.fingerprint)
        with runners.cell_runner(args, store, loaded) as (runner, progress):
            run_analyses(AuditInputs(loaded, plan, store, progress), ["sweep"], folder, runner)
    tables = {
        stem: read_table(folder, stem)
        for stem in ("sweep", "sweep_measures")
        if (stem == "sweep_measures" and len(plan.measures) > 1) or (stem == "sweep" and "nll" in plan.measures)
    }
    notes = common.say_notes(folder)
    if common.as_json(args, {"folder": folder, "notes": notes, "left_out": fit.left_out} | tables):
        return
    if "sweep" in tables:
        _print_summary(tables["sweep"])
    common.out.print(f"written to {folder}; look at it with: selector-audit dashboard", markup=False)


def _print_summary(table: pl.DataFrame) -> None:
    """NLL per selector at the rates people quote, mean over seeds."""
    quoted = [rate for rate in (0.0, 0.1, 0.2, 0.3, 0.5) if rate in table["rate"]] or sorted(set(table["rate"]))[:5]
    means = table.group_by("selector", "order", "rate", maintain_order=True).agg(pl.col("nll").mean())
    rows = []
    for selector, order in means.select("selector", "order").unique(maintain_order=True).iter_rows():
        curve = means.filter(selector=selector, order=order)
        values = dict(curve.select("rate", "nll").iter_rows())
        rows.append((selector, order, *(f"{values[rate]:.3f}" for rate in quoted)))
    columns = ("selector", "order", *(f"{rate:.0%}" for rate in quoted))
    common.print_table("NLL, nats per token (perplexity = e^NLL)", columns, rows, texts=2)
