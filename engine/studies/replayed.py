"""What made the tables of a results folder, run again: do their numbers hold?

Which studies can be, what of their plan the manifest tells, and what stands beside their tables, the studies and the
inputs of their group say (`Study.replayed`, `StudyInputs.from_record`)."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.models.loading import LoadedModel
from engine.records.errors import InputError, unknown
from engine.records.hashing import Json, canonical, environment
from engine.records.manifest import MANIFEST, read_manifest
from engine.records.progress import Progress
from engine.results.folders import is_published, read_table, table_names
from engine.results.store import Store
from engine.results.tables import TABLES
from engine.run.runner import LocalRunner
from engine.run.scoring import SCORES_FILE
from engine.selectors.own_scores import kept_beside
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, GROUPS, REFUSAL
from engine.studies.claims.ledger import ledger, needed
from engine.studies.conduct import Maker, OtherText, Recorded, Remaking, StudyInputs, run_studies
from engine.studies.refusal.refusal_inputs import RefusalInputs
from engine.studies.same_numbers import TOLERANCE, Held, same_arrays, same_numbers

CLAIMS = "claims"  # beside the studies: the ledger of claims
_ROWS = "rows"  # beside the scores
_IDENTITY = ("weights_hash", "config_hash", "tokenizer_hash", "dtype")
_INPUTS: dict[str, type[StudyInputs]] = {AUDIT: AuditInputs, REFUSAL: RefusalInputs}


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


def folder_of(manifest: Path) -> Path:
    """The results folder of a manifest, or the folder itself. Errors: InputError for published values."""
    folder = manifest.parent if manifest.name == MANIFEST else manifest
    if not folder.is_dir():
        raise InputError(f"there is no {manifest}; give a {MANIFEST} that `selector-audit` wrote, or its folder")
    if is_published(folder):
        raise InputError(f"{folder} holds values that a paper printed, which no run here made; give a run's folder")
    return folder


def parts_of(folder: Path) -> list[Recorded]:
    """What of the folder can be run again, in the order in which studies run."""
    files = read_manifest(folder)["files"]
    recorded = []
    if SCORES_FILE in files:
        stems = (_ROWS,) if f"{_ROWS}.parquet" in files else ()
        recorded.append(Recorded(AUDIT, AuditInputs.first, "", stems, files[SCORES_FILE].get("spec", {})))
    for group, inputs in _INPUTS.items():
        for info in GROUPS[group]:
            if inputs.all_replayed or info.study().replayed:
                recorded += _of_study(files, inputs, info.id, info.tables)
    if f"{CLAIMS}.parquet" in files:
        recorded.append(Recorded("", CLAIMS, "", (CLAIMS,), files[f"{CLAIMS}.parquet"].get("spec", {})))
    return recorded


def _of_study(files: Json, inputs: type[StudyInputs], study: str, stems: Sequence[str]) -> list[Recorded]:
    """The study's tables in a manifest, by what was written down with them."""
    by_spec: dict[str, Recorded] = {}
    for stem in stems:
        spec = files.get(f"{stem}.parquet", {}).get("spec", {})
        if inputs.recorded_by <= spec.keys():
            key = canonical({name: value for name, value in spec.items() if name not in inputs.own_entries})
            earlier = by_spec.get(key, Recorded(inputs.group, inputs.called(study), study, (), {}))
            by_spec[key] = earlier._replace(stems=(*earlier.stems, stem), spec=earlier.spec | spec)
    return list(by_spec.values())


def chosen(folder: Path, only: Sequence[str]) -> list[Recorded]:
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
    stored = read_manifest(folder).get("model") or {}
    for name in _IDENTITY:
        if stored.get(name) != getattr(loaded, name):
            raise InputError(
                f"{folder} holds results of {stored.get('id')} ({name} {str(stored.get(name))[:12]}), got {loaded.id} "
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
    named and cannot be run again; without `only` such a part is left out and named."""
    parts = chosen(folder, only)
    check_model(folder, loaded)
    texts = [*texts, *kept_beside(folder)]
    remaking = Remaking(folder, parts_of(folder), loaded, store, runner, texts, progress, {})
    tables: list[Held] = []
    left_out: dict[str, str] = {}
    notes: list[str] = []
    runs: dict[int, tuple[StudyInputs, list[Recorded]]] = {}  # parts of the same inputs are run together
    for part in parts:
        if part.name == CLAIMS:
            tables.append(_claims(folder, tolerance))
            continue
        try:
            inputs, said = _INPUTS[part.group].from_record(part, remaking)
        except InputError as error:
            if only or isinstance(error, OtherText):
                raise
            left_out[part.name] = str(error)
            continue
        notes += [f"{part.name}: {note}" for note in said]
        runs.setdefault(id(inputs), (inputs, []))[1].append(part)
    for inputs, same in runs.values():
        with tempfile.TemporaryDirectory() as place:
            skipped = _run_again(inputs, folder, same, runner, Path(place), skip=not only)
            left_out |= {part.name: skipped[part.study] for part in same if part.study in skipped}
            for part in same:
                if part.study not in skipped:
                    tables += _compared(folder, Path(place), inputs, part, tolerance, tables)
    if not only:
        left_out |= _not_here(folder, parts)
    notes += _other_software(folder, parts, loaded)
    return Replay(tuple(tables), left_out, tuple(dict.fromkeys(notes)))


def _run_again(
    inputs: StudyInputs, folder: Path, parts: Sequence[Recorded], runner: LocalRunner, again: Path, *, skip: bool
) -> dict[str, str]:
    """The studies of these parts into the folder `again`. returns those that could not be done, and why"""
    names = dict.fromkeys([] if inputs.cells_known_early else [inputs.first])
    makers: dict[str, Maker] = {}
    for part in parts:
        if part.study:
            names[part.study] = None
            makers |= GROUPS[part.group].get(part.study).study().remade_with(folder, part.stems)
    return run_studies(inputs, [*names, *makers], again, runner, skip=skip, makers=makers)["skipped"]


def _compared(
    folder: Path, again: Path, inputs: StudyInputs, part: Recorded, tolerance: float, earlier: Sequence[Held]
) -> Iterator[Held]:
    """What stands beside the tables once for all parts."""
    made_arrays = dict(inputs.arrays(again, part))
    for name, stored_arrays in inputs.arrays(folder, part):
        if all(one.table != name for one in earlier):
            yield same_arrays(name, stored_arrays, made_arrays.get(name, {}), tolerance)
    written = table_names(again)
    for stem in part.stems:
        stored = read_table(folder, stem)
        remade = read_table(again, stem) if stem in written else stored.clear()
        described = TABLES.get(stem) if stem in TABLES else None
        yield same_numbers(f"{stem}.parquet", stored, remade, described, tolerance)


def _claims(folder: Path, tolerance: float) -> Held:
    """The ledger from the folder's own tables: no model takes part."""
    stems = table_names(folder)
    again = ledger({stem: read_table(folder, stem) for stem in needed() if stem in stems})
    return same_numbers(f"{CLAIMS}.parquet", read_table(folder, CLAIMS), again, TABLES.get(CLAIMS), tolerance)


def _not_here(folder: Path, parts: Sequence[Recorded]) -> dict[str, str]:
    """Files that no part is about, by what makes them."""
    about = {f"{stem}.parquet" for part in parts for stem in part.stems}
    about |= {name for part in parts if part.group for name in _INPUTS[part.group].files_beside(folder, part)}
    why = (
        "only scores, tables of `sweep` and `analyze`, and of `refusal` sweep, select, structure, control, draws and "
        "stability are run again; run its own command into another folder"
    )
    return dict.fromkeys(sorted(read_manifest(folder)["files"].keys() - about), why)


def _other_software(folder: Path, parts: Sequence[Recorded], loaded: LoadedModel) -> list[str]:
    """What is not as it was: versions of libraries, and the kind of device."""
    manifest, here = read_manifest(folder), environment()["libraries"]
    files = [SCORES_FILE, *(f"{stem}.parquet" for part in parts for stem in part.stems)]
    was: dict[str, set[str]] = {}
    for name in files:
        libraries = manifest["files"].get(name, {}).get("environment", {}).get("libraries", {})
        for library, version in libraries.items():
            if version != here.get(library):
                was.setdefault(library, set()).add(str(version))
    changes = [f"{name} {', '.join(sorted(versions))}, here {here.get(name)}" for name, versions in sorted(was.items())]
    notes = [f"made with other versions: {'; '.join(changes)}"] if changes else []
    device, now = (manifest.get("model") or {}).get("device"), loaded.numeric_fingerprint["device"]
    if device != now:
        notes.append(f"made on {device}, run again on {now}")
    return notes
