"""Stages of `refusal` run again from what their manifest tells, for `engine.studies.replay`, which compares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.edits.contrasts import Contrast, load_contrasts
from engine.edits.mask_files import read_mask
from engine.judges.base import Judge, open_judges
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.hashing import Json, canonical
from engine.records.manifest import read_manifest
from engine.records.progress import Progress
from engine.results.folders import read_table, table_names
from engine.results.store import Store
from engine.run.recorded_plan import refusal_plan
from engine.run.runner import LocalRunner
from engine.studies.base import STAGES, Study
from engine.studies.conduct import run_studies
from engine.studies.refusal.calibrate import CONTRAST_FILE
from engine.studies.refusal.inputs import RefusalInputs
from engine.studies.refusal.kept_points import POINTS
from engine.studies.refusal.mask_outputs import kept_masks
from engine.studies.refusal.points import Chosen, Controlled, Measured

REPLAYED = ("select", "structure", "control", "draws", "stability")  # those whose record tells all that they read
_ENTRIES = ("control_seeds", "draw_seeds")  # further ones of a stage; all else of its spec is the run's
_SAME = ("pairs", "heldout", "onset_tokens", "judge", "judge_version", "evaluation", "thinking_mode")

Arrays = dict[str, npt.NDArray[Any]]


class Stage(NamedTuple):
    """Tables that one stage made under one plan."""

    name: str
    stems: tuple[str, ...]
    spec: Json


def called(stage_id: str) -> str:
    """What a stage's tables are called in a replay; those of the grid and its points by the grid's."""
    return f"refusal {'sweep' if stage_id == 'select' else stage_id}"


NAMES = {called(name): name for name in REPLAYED}


def stages_of(files: Json) -> Iterator[Stage]:
    """What of a manifest's files stages of `refusal` made that can be run again."""
    for name in REPLAYED:
        by_spec: dict[str, Stage] = {}
        for stem in STAGES.get(name).tables:
            spec = files.get(f"{stem}.parquet", {}).get("spec", {})
            if {"pairs", "lm_scores"} <= spec.keys():
                plain = {key: value for key, value in spec.items() if key not in _ENTRIES}
                key = canonical(plain)
                earlier = by_spec.get(key, Stage(called(name), (), spec))
                by_spec[key] = earlier._replace(stems=(*earlier.stems, stem), spec=earlier.spec | spec)
        yield from by_spec.values()


def inputs_of(
    folder: Path,
    stage: Stage,
    loaded: LoadedModel,
    store: Store,
    runner: LocalRunner,
    texts: Sequence[Path],
    progress: Progress | None = None,
) -> RefusalInputs:
    """The run that the stage belongs to.

    Errors: InputError where its prompts, text, onset phrases or judge are not to be had as they were.
    """
    spec = _whole(folder, stage)
    plan = refusal_plan(spec, texts, **_elsewhere(folder, stage, spec))
    run = RefusalInputs(loaded, plan, store, _judge(spec), progress, runner)
    now = run.spec(runner.results)
    for name in _SAME:
        if name in spec and _identity(spec[name]) != _identity(now.get(name)):
            raise InputError(
                f"{stage.name}: {name} is not what it was: {_short(spec[name])}, here {_short(now.get(name))}; "
                "a file that the run read is given with --text, onset phrases of one's own are not recorded"
            )
    return run


def run_again(folder: Path, stage: Stage, run: RefusalInputs, runner: LocalRunner, again: Path) -> None:
    """The stage into the folder `again`."""
    name = NAMES[stage.name]
    run_studies(run, [name], again, runner, makers={name: lambda run: _study(folder, stage, run)})


def contrast_arrays(folder: Path) -> Arrays:
    """Numbers of a folder's contrasts by name; empty without any."""
    path = folder / CONTRAST_FILE
    return _arrays(load_contrasts(path)[0]) if path.exists() else {}


def contrasts_again(run: RefusalInputs) -> Arrays:
    return _arrays(run.contrasts)


def mask_arrays(folder: Path, n_rows: int) -> Arrays:
    """Which rows the mask of each operating point removes: 0 or 1 for every row."""
    found: Arrays = {}
    for path in kept_masks(folder, POINTS).values():
        found[path.name] = np.zeros(n_rows, dtype=np.float32)
        found[path.name][read_mask(path, n_rows)[0]] = 1
    return found


def same_contrasts(folder: Path, run: RefusalInputs) -> bool:
    """Are the folder's contrasts those of this run, by their record?"""
    entry = read_manifest(folder)["files"].get(CONTRAST_FILE, {}).get("spec")
    now = run.calibration_spec()
    return entry is not None and all(entry.get(name) == value for name, value in now.items())


def _arrays(contrasts: Sequence[Contrast]) -> Arrays:
    found = {f"{one.selector}/{one.domain}/c_comply": one.c_comply for one in contrasts}
    return found | {f"{one.selector}/lm_rank": one.lm_rank for one in contrasts}


def _study(folder: Path, stage: Stage, run: RefusalInputs) -> Study[RefusalInputs]:
    if NAMES[stage.name] != "select":
        return STAGES.get(NAMES[stage.name]).make(run)
    if POINTS in stage.stems and "edited_malign" in read_table(folder, POINTS).columns:
        return _Both(run, controlled="control_malign" in read_table(folder, POINTS).columns)
    return Chosen(run)


class _Both(Chosen):
    """The sweep, and the points as the last stage that measured them left them."""

    def __init__(self, run: RefusalInputs, *, controlled: bool) -> None:
        super().__init__(run)
        self._of_points: Measured = Controlled(run) if controlled else Measured(run)

    def of_points(self, run: RefusalInputs, points: Any) -> Any:
        return self._of_points.of_points(run, points)

    def tables(self, run: RefusalInputs, results: Any) -> Any:
        return self.grid.tables(run, results) | {POINTS: self._of_points.tables(run, results)[POINTS]}


def _whole(folder: Path, stage: Stage) -> Json:
    """The stage's spec; `structure` by itself records its contrasts only, and a sweep of them tells the rest."""
    if "evaluation" in stage.spec:
        return stage.spec
    for other in stages_of(read_manifest(folder)["files"]):
        if "evaluation" in other.spec and all(other.spec.get(key) == value for key, value in stage.spec.items()):
            return other.spec
    raise InputError(
        f"{stage.name}: its tables tell of their contrasts alone, and no table of `refusal sweep` beside them tells of "
        "the judge; run it again with `refusal structure`"
    )


def _elsewhere(folder: Path, stage: Stage, spec: Json) -> dict[str, Any]:
    """Settings that tables tell and their record does not."""
    found: dict[str, Any] = {"domains": _domains(folder, stage, spec)}
    if "control_seeds" in stage.spec:
        found["control_seeds"] = tuple(stage.spec["control_seeds"])
    if "draw_seeds" in stage.spec:
        found["draws"] = len(stage.spec["draw_seeds"])
    if NAMES[stage.name] == "stability":
        found["splits"] = int(read_table(folder, "mask_stability")["seed"].n_unique())
    if "refusal_sweep" in table_names(folder):
        sweep = read_table(folder, "refusal_sweep")
        above = sweep.filter(sweep["nll"] > spec["max_nll"])
        found["all_cells"] = above.height > 0 and bool(above["malign"].is_not_null().any())
    return found


def _domains(folder: Path, stage: Stage, spec: Json) -> tuple[str, ...]:
    """In the run's order, which names the two sides of a pair; a manifest has them by name."""
    there = table_names(folder)
    for stem in (*stage.stems, *STAGES.get(NAMES[stage.name]).tables):
        table = read_table(folder, stem) if stem in there else None
        if table is not None and "domain" in table.columns:
            found = table["domain"].unique(maintain_order=True).to_list()
            if set(found) == set(spec["pairs"]):
                return tuple(found)
    return tuple(spec["pairs"])


def _judge(spec: Json) -> Judge:
    judge = open_judges(str(spec["judge"]), of_refusal=True)[0]
    if judge.version != spec.get("judge_version"):
        raise InputError(
            f"the replies were judged by {spec['judge']} {spec.get('judge_version')}, here it is {judge.version}: "
            "another judge's rates say nothing about these"
        )
    return judge


def _identity(value: Any) -> Any:
    """Of a text: its tokens' source and the windows, whose revision or path may differ."""
    if isinstance(value, dict) and "corpus_hash" in value:
        told = ("corpus_hash", "sample_ids", "length", "skipped_tokens", "window_prefix")
        return {name: value.get(name) for name in told}
    return value


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
