"""All stages of a refusal experiment in one go: what the commands write one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.data.prompt_sets import PromptSet
from engine.measures.harness_tasks import HarnessTask
from engine.records.errors import unknown
from engine.records.hashing import Json
from engine.records.progress import Stopwatch, begin
from engine.results.folders import with_model_name, write_tables
from engine.run.runner import Results, Runner
from engine.run.share import Measured
from engine.studies.base import Study, Tables, conduct
from engine.studies.refusal.baselines import Baselines
from engine.studies.refusal.calibrate import onsets_record, write_contrasts
from engine.studies.refusal.composed import Composed, check_domains
from engine.studies.refusal.draws import Drawn, draw_seeds
from engine.studies.refusal.inputs import RefusalInputs
from engine.studies.refusal.mask_outputs import GivesMasks, write_masks
from engine.studies.refusal.mask_stability import MaskStability
from engine.studies.refusal.points import POINTS, Chosen, Controlled, with_earlier
from engine.studies.refusal.structure import structure
from engine.studies.refusal.transfer import Evaluated

Finished = Callable[[str, Tables, float], None]  # stage, its tables, seconds
STAGES = ("calibrate", "sweep", "structure", "control", "evaluate")  # of every experiment, in their order


def run_stage(
    study: Study[RefusalInputs],
    run: RefusalInputs,
    runner: Runner,
    folder: Path,
    *,
    control_seeds: Sequence[int] = (),
    **more: object,
) -> Tables:
    """One stage, its tables and masks written beside their manifest; the operating points keep what earlier stages
    measured.

    control_seeds: of the stage's controls; more: further entries of the manifest's spec, but that of the points.
    """
    watch = Stopwatch()
    fingerprint = run.loaded.fingerprint
    tables = {stem: with_model_name(table, fingerprint) for stem, table in conduct(study, run, runner).items()}
    spec = run.spec(runner.results)
    seeds = {"control_seeds": list(control_seeds)} if control_seeds else {}

    def write(some: Tables, **entries: object) -> None:
        write_tables(folder, some, run.loaded.fingerprint, spec | seeds | entries, watch.elapsed_s)

    write({stem: table for stem, table in tables.items() if stem != POINTS}, **more)
    if POINTS in tables:
        whole, kept = with_earlier(folder, spec, tables[POINTS])
        write({POINTS: whole}, **kept)
    if isinstance(study, GivesMasks) and study.masks_of in tables:
        write_masks(folder, run.loaded, study.masks_of, study.masks(run, runner.results), watch.elapsed_s)
    return tables


def run_experiment(
    run: RefusalInputs,
    folder: Path,
    runner: Runner,
    *,
    composed: Sequence[str] = (),
    composed_selectors: Sequence[str] = (),
    also: Sequence[str] = (),
    sets: Sequence[PromptSet] = (),
    tasks: Sequence[HarnessTask] = (),
    finished: Finished | None = None,
) -> Json:
    """Calibrate, sweep, select, control, evaluate, structure and, where asked for, compose and stages of `BEYOND`.

    Points are chosen on the calibration pairs and measured on the held-out pairs. Each file is written as soon as it
    is there; every measured cell is in the store, so that an interrupted experiment goes on where it stopped.

    composed: domains of a composed mask; composed_selectors: those that it is built with, all of the plan if empty.
    also: of `BEYOND`. sets, tasks: what `evaluate` measures besides the held-out pairs. finished: called after every
    stage with its name, tables and seconds.
    A runner of a share of the cells (`Runner.whole`): no file is written; of every stage all is measured that it has to
    measure as far as is known what it wants, then `Measured` is raised.

    returns stage -> seconds
    """
    seconds: Json = {}
    parts = len(STAGES) + bool(composed) + len(also)

    def begun(name: str) -> None:
        begin(run.progress, name, len(seconds) + 1, parts)

    def ended(name: str, watch: Stopwatch, tables: Tables) -> None:
        seconds[name] = round(watch.elapsed_s, 1)
        if finished is not None:
            finished(name, tables, watch.elapsed_s)

    def stage(name: str, study: Study[RefusalInputs], of: RefusalInputs = run, **more: Any) -> None:
        watch = Stopwatch()
        begun(name)
        try:
            tables = run_stage(study, of, runner, folder, **more)
        except Measured:
            return
        ended(name, watch, tables)

    selectors = tuple(composed_selectors) or run.plan.selectors
    both = replace(run, plan=replace(run.plan, domains=tuple(composed) or None, selectors=selectors))
    if composed:
        check_domains(both, composed)  # before hours of other stages
    for name in also:
        if name not in BEYOND:
            raise unknown("stage", name, BEYOND)
    loaded, watch = run.loaded, Stopwatch()
    begun(STAGES[0])
    contrasts = run.contrasts
    if runner.whole:
        spec = run.calibration_spec() | {"onsets": onsets_record(loaded, run.plan.phrases)}
        write_contrasts(folder, loaded, contrasts, spec, watch.elapsed_s)
        ended(STAGES[0], watch, {})
    stage("sweep", Chosen(run))
    stage("structure", Structure())
    stage("control", Controlled(run), control_seeds=run.plan.control_seeds)
    stage("evaluate", Evaluated(run, sets, tasks), prompt_sets={one.name: one.source for one in sets})
    if composed:
        stage("compose", Composed(both, composed), both)
    for name in also:
        study, record = BEYOND[name](run)
        stage(name, study, **record)
    if not runner.whole:
        raise Measured
    return seconds


def _baselines(run: RefusalInputs) -> tuple[Study[RefusalInputs], Json]:
    study = Baselines(run)
    return study, study.record(run)


# Stages beyond the paper's, each with the further entries of its manifest.
BEYOND: dict[str, Callable[[RefusalInputs], tuple[Study[RefusalInputs], Json]]] = {
    "stability": lambda run: (MaskStability(run), {}),
    "baselines": _baselines,
    "draws": lambda run: (Drawn(run), {"draw_seeds": list(draw_seeds(run))}),
}


class Structure:
    """The tables of `structure`: of the contrasts alone."""

    def cells(self, run: RefusalInputs, known: Results) -> tuple[()]:
        return ()

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        return structure(run.loaded.id, run.contrasts, run.loaded.rows)
