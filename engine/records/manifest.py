"""The manifest of a results folder: what is stored beside every number."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from engine.records import bounds
from engine.records.environment import environment
from engine.records.errors import InputError
from engine.records.files import FileKind, json_object, write_atomic
from engine.records.hashing import SCHEMA_VERSION, Json, file_sha256
from engine.records.manifest_form import misfit
from engine.records.shortfalls import shortfalls

MANIFEST = "manifest.json"
MANIFEST_FILE = FileKind("a manifest", lambda path: path.name == MANIFEST and is_manifest(path))
_RUN = "numerics"  # of a model's fingerprint: how this run computed with it


def read_manifest(folder: Path) -> Json:
    """The manifest of a results folder; an `InputError` where it is absent, broken or from a newer version."""
    path = folder / MANIFEST
    if path.exists() and not path.is_file():  # reading from a pipe would wait for ever
        raise InputError(f"{path} cannot be read (it is no file); remove it and run the command again")
    try:
        manifest = bounds.json_of(path)
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {MANIFEST}; give a folder that `selector-audit` wrote with --out"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); make it readable") from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError as well
        raise InputError(
            f"{path} is not readable JSON ({error}); delete the folder and run the command again"
        ) from None
    found = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or found > SCHEMA_VERSION:
        raise InputError(f"{path} has schema version {found!r}, this software reads up to {SCHEMA_VERSION}; upgrade it")
    try:
        wrong = misfit(manifest)
    except RecursionError:
        wrong = "it is nested too deep"
    if wrong:
        raise InputError(f"{path}: {wrong}; another program wrote it; run the command again into another folder")
    manifest.setdefault("files", {})
    return manifest


def is_manifest(path: Path) -> bool:
    """Is this a manifest of ours, also of a newer version? A `manifest.json` of web pages, say, is none."""
    found = json_object(path)
    files = found.get("files")
    if not isinstance(found.get("schema_version"), int) or not isinstance(files, dict):
        return False
    return all(isinstance(entry, dict) and "sha256" in entry for entry in files.values())


def is_listed(path: Path) -> bool:
    """Does a manifest beside this file name it?"""
    manifest = path.with_name(MANIFEST)
    return manifest.is_file() and is_manifest(manifest) and path.name in json_object(manifest)["files"]


def add_to_manifest(folder: Path, model: Json, filename: str, spec: Json, wall_time_s: float) -> Json:
    """Record `filename`, just written into `folder`, in the folder's manifest; returns the file's entry.

    A folder holds the results of one model: another model's weights or dtype are an `InputError`. What of the model may
    differ from run to run (`numerics`) stands in the file's entry.
    """
    path = folder / MANIFEST
    empty: Json = {"schema_version": SCHEMA_VERSION, "files": {}}
    manifest = read_manifest(folder) if path.exists() else empty
    check_same_model(folder, manifest, model)
    entry = {
        "sha256": file_sha256(folder / filename),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_time_s": round(wall_time_s, 3),
        "spec": spec,
        "environment": environment(),
    }
    if _RUN in model:
        entry[_RUN] = model[_RUN]
    if notes := shortfalls(spec):
        entry["notes"] = notes
    manifest["model"] = {name: value for name, value in model.items() if name != _RUN}
    manifest["files"][filename] = entry
    write_atomic(path, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode(), MANIFEST_FILE)
    return entry


def notes_of(manifest: Json) -> list[str]:
    """What is to be said of the folder's files, with the files that it is said of."""
    about: dict[str, list[str]] = {}
    for name, entry in sorted(manifest.get("files", {}).items()):
        for note in entry.get("notes", []):
            about.setdefault(note, []).append(name)
    return [f"{note} (read for {', '.join(names)})" for note, names in about.items()]


def drop_from_manifest(folder: Path, filenames: Collection[str]) -> None:
    """Forget files of the folder that are about to be deleted."""
    if not filenames:
        return
    manifest = read_manifest(folder)
    manifest["files"] = {name: entry for name, entry in manifest["files"].items() if name not in filenames}
    write_atomic(folder / MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode(), MANIFEST_FILE)


def check_folder(folder: Path, model: Json) -> None:
    """`InputError` if `folder` holds results of other weights or another dtype: before anything is computed for it."""
    if (folder / MANIFEST).exists():
        check_same_model(folder, read_manifest(folder), model)


def check_same_model(folder: Path, manifest: Json, model: Json) -> None:
    """An `InputError` if the folder's manifest names other weights or another dtype than `model`."""
    there = manifest.get("model")
    if not there:
        return
    for field in ("weights_hash", "dtype"):
        if there.get(field) != model.get(field):
            raise InputError(
                f"{folder} holds results of {there.get('id')} ({field} {str(there.get(field))[:12]}), "
                f"got {model.get('id')} ({str(model.get(field))[:12]}); give another folder with --out"
            )
