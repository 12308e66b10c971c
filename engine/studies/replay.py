"""What made the tables of a results folder, run again: do their numbers hold?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from engine.models.loading import LoadedModel
from engine.records import bounds
from engine.records.environment import environment
from engine.records.errors import InputError, unknown
from engine.records.hashing import Json, canonical
from engine.records.manifest import MANIFEST, read_manifest
from engine.records.progress import Progress
from engine.results.folders import is_published, read_table, table_names, verified_entry
from engine.results.store import Store
from engine.results.tables import TABLES, TableSpec
from engine.run.audit_plan import AuditPlan
from engine.run.recorded_plan import audit_plan, score_plan
from engine.run.runner import LocalRunner
from engine.selectors.own_scores import kept_beside
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import ANALYSES, AUDIT, plan_type
from engine.studies.claims.ledger import ledger, needed
from engine.studies.conduct import run_studies
from engine.studies.refusal import run_again as refusal
from engine.studies.refusal.calibrate import CONTRAST_FILE
from engine.studies.refusal.kept_points import POINTS
from engine.studies.refusal.mask_outputs import kept_masks
from engine.studies.same_numbers import TOLERANCE, Held, same_arrays, same_numbers

SCORES, CLAIMS = "scores", "claims"  # beside the analyses: the scores' file and the rows; the ledger of claims
_SCORES_FILE, _ROWS = "scores.safetensors", "rows"
_IDENTITY = ("weights_hash", "config_hash", "tokenizer_hash", "dtype")
_READS = {"domain": ("domain_corpus",), "downstream": ("downstream_tasks",)}  # settings that only these open


class Part(NamedTuple):
    """Tables that one analysis made under one plan."""

    name: str  # of the analysis, or SCORES or CLAIMS
    stems: tuple[str, ...]
    spec: Json


@dataclass(frozen=True)
class Replay:
    """tables: what became of each. left_out: file or analysis -> why it was not run again. notes: what else a reader of
    the answer has to know."""

    tables: tuple[Held, ...]
    left_out: dict[str, str]
    notes: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return all(one.holds for one in self.tables)


@dataclass
class _Found:
    """What has been gathered so far."""

    tables: list[Held] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def folder_of(manifest: Path) -> Path:
    """The results folder of a manifest, or the folder itself. Errors: InputError for published values."""
    folder = manifest.parent if manifest.name == MANIFEST else manifest
    if not folder.is_dir():
        raise InputError(f"there is no {manifest}; give a {MANIFEST} that `selector-audit` wrote, or its folder")
    if is_published(folder):
        raise InputError(f"{folder} holds values that a paper printed, which no run here made; give a run's folder")
    return folder


def parts_of(folder: Path) -> list[Part]:
    """What of the folder can be run again, in the order in which analyses run."""
    files = read_manifest(folder)["files"]
    found = []
    if _SCORES_FILE in files:
        stems = (_ROWS,) if f"{_ROWS}.parquet" in files else ()
        found.append(Part(SCORES, stems, files[_SCORES_FILE].get("spec", {})))
    for info in ANALYSES:
        by_spec: dict[str, Part] = {}
        for stem in info.tables:
            spec = files.get(f"{stem}.parquet", {}).get("spec", {})
            if "settings" in spec and "scores" in spec:
                key = canonical(spec)
                earlier = by_spec.get(key, Part(info.id, (), spec))
                by_spec[key] = earlier._replace(stems=(*earlier.stems, stem))
        found += by_spec.values()
    found += [Part(*stage) for stage in refusal.stages_of(files)]
    if f"{CLAIMS}.parquet" in files:
        found.append(Part(CLAIMS, (CLAIMS,), files[f"{CLAIMS}.parquet"].get("spec", {})))
    return found


def chosen(folder: Path, only: Sequence[str]) -> list[Part]:
    """The parts that these analyses or tables are, all for none. Errors: InputError for what the folder does not have
    or nobody can run again."""
    parts = parts_of(folder)
    known = {part.name for part in parts} | {stem for part in parts for stem in part.stems}
    for name in only:
        if name not in known:
            raise unknown("part of these results", name, known)
    if not parts:
        raise InputError(
            f"{folder} holds nothing that can be run again: scores, or tables of `sweep`, `analyze` and `refusal`"
        )
    if not only:
        return parts
    return [
        part._replace(stems=tuple(stem for stem in part.stems if part.name in only or stem in only))
        for part in parts
        if part.name in only or set(part.stems) & set(only)
    ]


def check_model(folder: Path, loaded: LoadedModel) -> None:
    """Errors: InputError where the folder's results are of other weights, settings, tokenizer or dtype."""
    there = read_manifest(folder).get("model") or {}
    for name in _IDENTITY:
        if there.get(name) != getattr(loaded, name):
            raise InputError(
                f"{folder} holds results of {there.get('id')} ({name} {str(there.get(name))[:12]}), got {loaded.id} "
                f"({str(getattr(loaded, name))[:12]}): another model's numbers say nothing about these; give the model "
                "that made them with --model and --revision"
            )


def replay(
    folder: Path,
    loaded: LoadedModel,
    store: Store,
    runner: LocalRunner,
    *,
    only: Sequence[str] = (),
    texts: Sequence[Path] = (),
    tolerance: float = TOLERANCE,
    progress: Progress | None = None,
) -> Replay:
    """Measure again what `only` names, everything by default, and compare it with the folder (`same_numbers.RULE`).

    store: what it knows is not measured again, so that a stopped replay goes on; it must not be the one that the
    folder was made with. texts: files that the run read, found by their names, those of scores of one's own by their
    bytes. Nothing is written into the folder.
    Errors: InputError for another model or another text than the run's, for a damaged table, for a part that is
    named and cannot be run again; without `only` such a part is left out and named.
    """
    parts = chosen(folder, only)
    check_model(folder, loaded)
    texts = [*texts, *kept_beside(folder)]
    found = _Found()
    by_plan: dict[AuditPlan, list[Part]] = {}
    _refusal(folder, loaded, store, runner, parts, found, only, texts, tolerance, progress)
    for part in parts:
        if part.name in refusal.NAMES:
            continue
        if part.name == CLAIMS:
            found.tables.append(_claims(folder, tolerance))
            continue
        try:
            by_plan.setdefault(_plan(part, texts, found), []).append(part)
        except InputError as error:
            if only:
                raise
            found.left_out[part.name] = str(error)
    with tempfile.TemporaryDirectory() as place:
        for number, (plan, same) in enumerate(by_plan.items()):
            audit = AuditInputs(loaded, plan, store, progress)
            try:
                read = list(_texts_of(audit, same))
            except InputError as error:  # out of reach
                if only:
                    raise
                found.left_out |= dict.fromkeys((part.name for part in same), str(error))
                continue
            _check_texts(read)
            again = Path(place) / str(number)
            names = [part.name for part in same if part.name != SCORES]
            report = run_studies(audit, names, again, runner, skip=not only)
            found.left_out |= {name: why for name, why in report["skipped"].items() if name != CLAIMS}
            for part in same:
                if part.name not in report["skipped"]:
                    found.tables += _compared(folder, again, part, tolerance)
    if not only:
        found.left_out |= _not_here(folder, parts)
    notes = [*dict.fromkeys(found.notes), *_other_software(folder, parts, loaded)]
    return Replay(tuple(found.tables), found.left_out, tuple(notes))


def _plan(part: Part, texts: Sequence[Path], found: _Found) -> AuditPlan:
    if part.name == SCORES:
        return AuditPlan(scoring=score_plan(part.spec, texts))
    reads = [*_READS.get(part.name, ()), *(["eval_corpus"] if ANALYSES.get(part.name).reads_text else [])]
    plan, notes = audit_plan(part.spec, reads, texts, plan_type(AUDIT))
    found.notes += [f"{part.name}: {note}" for note in notes]
    return plan


def _refusal(
    folder: Path,
    loaded: LoadedModel,
    store: Store,
    runner: LocalRunner,
    parts: Sequence[Part],
    found: _Found,
    only: Sequence[str],
    texts: Sequence[Path],
    tolerance: float,
    progress: Progress | None,
) -> None:
    """Stages of `refusal`, with the contrasts and the points' masks beside their tables."""
    compared: set[str] = set()
    for part in parts:
        if part.name not in refusal.NAMES:
            continue
        stage = refusal.Stage(*part)
        try:
            run = refusal.inputs_of(folder, stage, loaded, store, runner, texts, progress)
        except InputError as error:
            if only:
                raise
            found.left_out[part.name] = str(error)
            continue
        with tempfile.TemporaryDirectory() as place:
            again = Path(place)
            refusal.run_again(folder, stage, run, runner, again)
            found.tables += _compared(folder, again, part, tolerance)
            if masks := refusal.mask_arrays(folder, loaded.rows.n_rows) if POINTS in part.stems else {}:
                made = refusal.mask_arrays(again, loaded.rows.n_rows)
                found.tables.append(same_arrays("masks of operating points", masks, made, tolerance))
        stored = refusal.contrast_arrays(folder)
        if stored and CONTRAST_FILE not in compared and refusal.same_contrasts(folder, run):
            compared.add(CONTRAST_FILE)
            made = refusal.contrasts_again(run)
            found.tables.append(same_arrays(CONTRAST_FILE, stored, made, tolerance))


def _texts_of(audit: AuditInputs, parts: Iterable[Part]) -> Iterator[tuple[str, str, Json, Json]]:
    """Part, role, and the text as it is recorded and as it is here. Errors: InputError for one that cannot be read."""
    for part in parts:
        of_scores = part.spec if part.name == SCORES else part.spec["scores"]
        if record := of_scores.get("calibration"):
            yield part.name, "calibration", record, audit.calibration.record()
        if record := part.spec.get("evaluation"):
            yield part.name, "evaluation", record, audit.evaluation.record()


def _check_texts(read: Iterable[tuple[str, str, Json, Json]]) -> None:
    """Errors: InputError where a text is not the one that was read."""
    for part, role, record, now in read:
        for name in ("corpus_hash", "sample_ids", "skipped_tokens"):
            if name in record and record[name] != now[name]:
                raise InputError(
                    f"{part}: the {role} text {record['corpus']} is not the one that was read ({name} "
                    f"{str(record[name])[:12]}, here {str(now[name])[:12]}); give that text with --text"
                )


def _compared(folder: Path, again: Path, part: Part, tolerance: float) -> list[Held]:
    found = []
    if part.name == SCORES:
        verified_entry(folder / _SCORES_FILE, "selector-audit score MODEL")
        stored_scores, made_scores = _scores_of(folder), _scores_of(again)
        found.append(same_arrays(_SCORES_FILE, stored_scores, made_scores, tolerance))
    written = table_names(again)
    for stem in part.stems:
        stored = read_table(folder, stem)
        made = read_table(again, stem) if stem in written else stored.clear()
        found.append(same_numbers(f"{stem}.parquet", stored, made, _described(stem), tolerance))
    return found


def _scores_of(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        bounds.tensors(folder / _SCORES_FILE)
        return load_file(folder / _SCORES_FILE)
    except (OSError, SafetensorError, bounds.BadFile) as error:
        raise InputError(
            f"{folder / _SCORES_FILE} is not readable ({error}); run `selector-audit score` again"
        ) from None


def _described(stem: str) -> TableSpec | None:
    return TABLES.get(stem) if stem in TABLES else None


def _claims(folder: Path, tolerance: float) -> Held:
    """The ledger from the folder's own tables: no model takes part."""
    there = table_names(folder)
    again = ledger({stem: read_table(folder, stem) for stem in needed() if stem in there})
    return same_numbers(f"{CLAIMS}.parquet", read_table(folder, CLAIMS), again, _described(CLAIMS), tolerance)


def _not_here(folder: Path, parts: Sequence[Part]) -> dict[str, str]:
    """Files that no part is about, by what makes them."""
    about = {_SCORES_FILE} | {f"{stem}.parquet" for part in parts for stem in part.stems}
    if any(part.name in refusal.NAMES for part in parts):
        about |= {CONTRAST_FILE}
    if any(POINTS in part.stems for part in parts):
        about |= {path.name for path in kept_masks(folder, POINTS).values()}
    why = (
        "only scores, tables of `sweep` and `analyze`, and of `refusal` sweep, select, structure, control, draws and "
        "stability are run again; run its own command into another folder"
    )
    return dict.fromkeys(sorted(read_manifest(folder)["files"].keys() - about), why)


def _other_software(folder: Path, parts: Sequence[Part], loaded: LoadedModel) -> list[str]:
    """What is not as it was: versions of libraries, and the kind of device."""
    manifest, here = read_manifest(folder), environment()["libraries"]
    files = [_SCORES_FILE, *(f"{stem}.parquet" for part in parts for stem in part.stems)]
    was: dict[str, set[str]] = {}
    for name in files:
        libraries = manifest["files"].get(name, {}).get("environment", {}).get("libraries", {})
        for library, version in libraries.items():
            if version != here.get(library):
                was.setdefault(library, set()).add(str(version))
    told = [f"{name} {', '.join(sorted(versions))}, here {here.get(name)}" for name, versions in sorted(was.items())]
    notes = [f"made with other versions: {'; '.join(told)}"] if told else []
    device, now = (manifest.get("model") or {}).get("device"), loaded.numeric_fingerprint["device"]
    if device != now:
        notes.append(f"made on {device}, run again on {now}")
    return notes
