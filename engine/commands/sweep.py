"""`sweep`: LeRF/MoRF curves of the chosen selectors.

Writes sweep.parquet: one row per selector, seed, order and rate with the NLL (nats per token), its standard error and
the perplexity. Finished cells are kept: the same command resumes."""

import argparse

from engine.commands import common, options
from engine.commands.analyze import measured
from engine.run.audit_plan import OF_SWEEP, SHIPPED, AuditPlan, for_model


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser)
    options.add_options(parser, {"": AuditPlan(), "shipped model": for_model(AuditPlan(), SHIPPED)}, OF_SWEEP)
    common.add_runner(parser)
    common.add_run(parser)


def run(args: argparse.Namespace) -> None:
    plan = options.plan_from(args, for_model(AuditPlan(), args.model))
    fit, _, folder, answers = measured(args, plan, ["sweep"])
    notes = common.say_notes(folder)
    answer = answers["sweep"]
    if common.as_json(args, {"folder": folder, "notes": notes, "left_out": fit.left_out} | answer.record):
        return
    common.say(answer.text)
    common.out.print(f"written to {folder}; look at it with: selector-audit dashboard")
