"""The runs of a results folder: which there are, what is in them, whether they are whole; deleting one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from dashboard.state import access, results
from engine.commands.outputs import own_results
from engine.records.errors import InputError
from engine.records.files import json_object
from engine.records.hashing import file_sha256
from engine.records.manifest import MANIFEST, is_manifest, read_manifest
from engine.records.model_names import model_name

WRITTEN = frozenset((".parquet", ".safetensors", ".json", ".jsonl", ".html"))  # what commands leave in a run


@dataclass(frozen=True)
class Run:
    """A folder with a manifest. `problem` is empty where every file is there and fits its checksum."""

    name: str  # relative to the results folder
    folder: Path
    model: str
    files: tuple[str, ...]
    measured: str  # day of the newest file, empty where no date is known
    size_bytes: int
    problem: str
    model_id: str = ""  # what a command takes, "" where that is not known

    @property
    def tables(self) -> list[str]:
        return sorted(Path(name).stem for name in self.files if name.endswith(".parquet"))


def listed(top: Path) -> list[Run]:
    """Every folder at or below `top` with a manifest, by name. An absent `top` has none."""
    folders = {path.parent for path in results.below(top, MANIFEST, odd=True)}
    visible = [folder for folder in folders if not any(part.startswith(".") for part in folder.relative_to(top).parts)]
    return [run(folder, top) for folder in sorted(visible)]


def run(folder: Path, top: Path) -> Run:
    """One run; what is wrong with it is its `problem`, never an error."""
    name, size = results.shown(folder.relative_to(top) if folder != top else folder.name), 0
    try:
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        if results.shown(folder) != str(folder):
            raise InputError("the name of this folder is not UTF-8, so that its results cannot be named; rename it")
        manifest = read_manifest(folder)
        entries = entries_of(manifest)
        of = manifest.get("model") or {"id": "unknown"}
        problem = "; ".join(filter(None, (what_is_wrong(folder / file, entry) for file, entry in entries.items())))
        dated = max((str(entry.get("date", ""))[:10] for entry in entries.values()), default="")
        return Run(name, folder, model_name(of), tuple(sorted(entries)), dated, size, problem, str(of.get("id", "")))
    except (InputError, OSError) as error:
        return Run(name, folder, "unknown", (), "", size, results.shown(str(error)))


def provenance(found: Run) -> dict[str, Any]:
    """The manifest as it was written. `InputError` where it is broken."""
    if results.shown(found.folder) != str(found.folder):
        raise InputError(found.problem)
    return read_manifest(found.folder)


def files(found: Run) -> pl.DataFrame:
    """One row per file of the manifest: file, rows (tables), bytes, date, seconds, state."""
    rows = []
    for name, entry in entries_of(provenance(found)).items():
        path = found.folder / name
        size = path.stat().st_size if path.is_file() else None
        about = (str(entry.get("date", "")), entry.get("wall_time_s"), what_is_wrong(path, entry) or "as written")
        rows.append((name, results.height(path), size, *about))
    schema: dict[str, Any] = {"file": pl.String, "rows": pl.Int64, "bytes": pl.Int64, "date": pl.String}
    schema |= {"seconds": pl.Float64, "state": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row", strict=False)


def checked_name(name: str) -> str:
    """A file name that a manifest may list: plain, visible, of a kind that commands write. `InputError` otherwise."""
    plain = name == Path(name).name and "\\" not in name and not name.startswith(".")
    if not plain or Path(name).suffix not in WRITTEN or name == MANIFEST:
        raise InputError(
            f"{MANIFEST} lists {name!r}; a run holds files named *{', *'.join(sorted(WRITTEN))} without folders"
        )
    return name


def delete(folder: Path, top: Path) -> list[str]:
    """Delete a run below `top`: the files that its manifest lists, and the manifest; where that is damaged, the files
    that are results by their content. Returns what was left in place.
    Nothing else is touched, no folder inside it either; the folder goes when it is empty. `InputError` for a
    folder that is not inside `top` (links are followed first) or holds no manifest of ours."""
    access.need("deleting runs")
    real, inside = folder.resolve(), top.resolve()
    if folder.is_symlink() or inside not in real.parents:
        raise InputError(f"{folder} is not inside {top}; only runs of this folder can be deleted here")
    ours = is_manifest(real / MANIFEST)
    own = [real / name for name in entries_of(read_manifest(real))] if ours else own_results(real)
    if not ours and not ((real / MANIFEST).is_file() and not json_object(real / MANIFEST) and own):
        raise InputError(
            f"{folder} holds no {MANIFEST} that this software wrote, so it is not a run; delete it yourself if you are "
            "sure"
        )
    # The manifest goes last: until then the rest of an interrupted deletion is still offered for deletion.
    for path in [*own, real / MANIFEST]:
        path.unlink(missing_ok=True)
    left = sorted(path.name for path in real.iterdir())
    if not left:
        real.rmdir()
    return left


def entries_of(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By file. `InputError` where the manifest lists none, or a name that no run has."""
    entries = manifest.get("files")
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise InputError(f"{MANIFEST} lists no files; delete the folder and run the command again")
    return {checked_name(str(name)): entry for name, entry in entries.items()}


def what_is_wrong(path: Path, entry: dict[str, Any]) -> str:
    """Empty where the file is as its entry says."""
    if not path.is_file():
        return f"{path.name} is missing"
    return "" if _hash(path) == entry.get("sha256") else f"{path.name} does not fit its checksum"


_hash = results.while_unchanged(512, lambda path: (path,))(file_sha256)
