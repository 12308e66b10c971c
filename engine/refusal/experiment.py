"""All stages of a refusal experiment in one go: what the commands write one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.evaluation.perplexity import perplexity
from engine.records import Json, Stopwatch
from engine.refusal.calibrate import onsets_record, write_contrasts
from engine.refusal.composed import compose
from engine.refusal.grid import sweep_refusal
from engine.refusal.operating_point import operating_points
from engine.refusal.points import POINTS, chosen_table, controlled_table, joined, measured_table
from engine.refusal.results import write_tables
from engine.refusal.run import RefusalRun
from engine.refusal.structure import structure
from engine.refusal.transfer import replies_table, transfer_table


def run_experiment(
    run: RefusalRun,
    folder: Path,
    *,
    composed: Sequence[str] = (),
    composed_selectors: Sequence[str] = (),
) -> Json:
    """Calibrate, sweep, select, control, evaluate, structure and, for the domains `composed`, compose.

    Points are chosen on the calibration pairs and measured on the held-out pairs. Each file is written as soon as it
    is there; every measured cell is in the run's store, so that an interrupted experiment goes on where it stopped.

    composed_selectors: those that a composed mask is built with, all of the plan if empty.
    returns stage -> seconds
    """
    seconds: Json = {}
    watch = Stopwatch()

    def done(stage: str) -> float:
        nonlocal watch
        seconds[stage] = round(watch.elapsed_s, 1)
        watch = Stopwatch()
        return float(seconds[stage])

    loaded, plan = run.loaded, run.plan
    contrasts = run.contrasts
    spec = run.calibration_spec() | {"onsets": onsets_record(loaded, plan.phrases)}
    write_contrasts(folder, loaded, contrasts, spec, done("calibrate"))
    tables = structure(loaded.id, contrasts, loaded.rows)
    write_tables(folder, run, tables, done("structure"))
    sweep = sweep_refusal(run, contrasts, run.calibration)
    write_tables(folder, run, {"refusal_sweep": sweep}, done("sweep"))
    points = operating_points(sweep, benign_limit=plan.benign_limit, max_perplexity=perplexity(run.max_nll))
    measured = measured_table(run, contrasts, points)
    controlled, controls = controlled_table(run, contrasts, points)
    tables = {POINTS: joined(chosen_table(run, points), measured, controlled), "refusal_controls": controls}
    write_tables(folder, run, tables, done("control"), control_seeds=list(plan.control_seeds))
    tables = {"transfer": transfer_table(run, points), "refusal_replies": replies_table(run, points)}
    write_tables(folder, run, tables, done("evaluate"))
    if composed:
        selectors = tuple(composed_selectors) or plan.selectors
        both = replace(run, plan=replace(plan, domains=tuple(composed), selectors=selectors))
        table, behind = compose(both, composed)
        tables = {"composed": table, "composed_sweep": behind}
        write_tables(folder, both, tables, done("compose"))
    return seconds
