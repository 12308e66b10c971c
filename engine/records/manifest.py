"""The manifest of a results folder: what is stored beside every number."""

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.records import bounds
from engine.records.domain_names import domain_name
from engine.records.environment import environment
from engine.records.errors import InputError
from engine.records.files import FileKind, write_atomic
from engine.records.hashing import Json, file_sha256
from engine.records.manifest_form import SHARING_VERSION, expanded, misfit, text_of_manifest

MANIFEST = "manifest.json"
MANIFEST_FILE = FileKind("a manifest", lambda path: path.name == MANIFEST and is_manifest(path))
_MAX_KEPT_BYTES = 4 * bounds.MIB  # of a manifest that is kept parsed; a folder of ours has far less
_RUN = "numerics"  # of a model's fingerprint: how this run computed with it


def read_manifest(folder: Path) -> Json:
    """The manifest of a results folder, read-only; an `InputError` where it is absent, broken or from a newer version.
    What entries share stands in each of them. One text is parsed and checked once, however often it is read."""
    path = folder / MANIFEST
    if path.exists() and not path.is_file():  # reading from a pipe would wait for ever
        raise InputError(f"{path} cannot be read (it is no file); remove it and run the command again")
    try:
        content = bounds.content_of(path, bounds.MAX_JSON_BYTES)
        version = _version(_parsed(content))
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {MANIFEST}; give a folder that `selector-audit` wrote with --out"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); make it readable") from None
    except ValueError as error:  # a number of 5,000 digits is one as well
        raise InputError(
            f"{path} is not readable JSON ({error}); delete the folder and run the command again"
        ) from None
    if not isinstance(version, int) or isinstance(version, bool) or version > SHARING_VERSION:
        raise InputError(
            f"{path} has schema version {version!r}, this software reads up to {SHARING_VERSION}; upgrade it"
        )
    try:
        return _expanded(content)
    except InputError as misfits:
        raise InputError(
            f"{path}: {misfits}; another program wrote it; run the command again into another folder"
        ) from None


def _version(manifest: Any) -> Any:
    return manifest.get("schema_version") if isinstance(manifest, dict) else None


def _once_per_content(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """`read`, with its answers kept for contents of a usual size."""
    remembered = lru_cache(maxsize=64)(read)
    return lambda content: (remembered if len(content) <= _MAX_KEPT_BYTES else read)(content)


@_once_per_content
def _parsed(content: bytes) -> Any:
    """What a manifest's text says, whatever it is. Errors: ValueError."""
    return bounds.parsed(content.decode())


@_once_per_content
def _expanded(content: bytes) -> Json:
    """A manifest of a version that is read. Errors: InputError for what does not look like one."""
    manifest = _parsed(content)
    if wrong := misfit(manifest):
        raise InputError(wrong)
    return expanded(manifest)


def is_manifest(path: Path) -> bool:
    """Is this a manifest of ours, also of a newer version? A `manifest.json` of web pages, say, is none."""
    return _listed(path) is not None


def is_listed(path: Path) -> bool:
    """Does a manifest beside this file name it?"""
    return path.name in (_listed(path.with_name(MANIFEST)) or ())


def _listed(path: Path) -> Json | None:
    """The entries of a manifest of ours, also of a newer version; None where the file is none."""
    try:
        manifest = _parsed(bounds.content_of(path, bounds.MAX_JSON_BYTES))
    except (OSError, ValueError):
        return None
    files = manifest.get("files") if isinstance(_version(manifest), int) else None
    ours = isinstance(files, dict) and all(isinstance(entry, dict) and "sha256" in entry for entry in files.values())
    return files if ours else None


def write_manifest(folder: Path, manifest: Json) -> None:
    """Write the folder's manifest, what its entries share once, and a line for each file."""
    write_atomic(folder / MANIFEST, text_of_manifest(manifest).encode(), MANIFEST_FILE)


def add_to_manifest(folder: Path, model: Json, filename: str, spec: Json, wall_time_s: float) -> Json:
    """Record `filename`, just written into `folder`, in the folder's manifest; returns the file's entry. A folder holds
    the results of one model: another model's weights or dtype are an `InputError`. What of the model may differ from
    run to run (`numerics`) stands in the file's entry."""
    manifest = read_manifest(folder) if (folder / MANIFEST).exists() else {"files": {}}
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
    of_model = {name: value for name, value in model.items() if name != _RUN}
    write_manifest(folder, {**manifest, "model": of_model, "files": {**manifest["files"], filename: entry}})
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
    remaining = {name: entry for name, entry in manifest["files"].items() if name not in filenames}
    write_manifest(folder, {**manifest, "files": remaining})


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


def shortfalls(spec: Any) -> list[str]:
    """One sentence for every short text that is recorded anywhere in a spec (`samples` below `samples_requested`, or
    `draws` below `draws_requested`), each once, and for every domain whose name its pairs spell in several ways."""
    spelled = spec.get("domain_spellings", {}) if isinstance(spec, dict) else {}
    return [
        *dict.fromkeys(_sentence(record) for record in _short_records(spec)),
        *(f"{', '.join(map(repr, names))} are one domain, {domain_name(one)}" for one, names in spelled.items()),
    ]


def _short_records(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        for name in ("samples", "draws"):
            found, wanted = value.get(name), value.get(f"{name}_requested")
            sizes = (value.get("samples"), value.get("samples_requested"))
            whole = isinstance(found, int) and isinstance(wanted, int) and found < wanted
            if whole and all(isinstance(size, int) for size in sizes):
                yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _short_records(one)


def _sentence(record: Json) -> str:
    if "draws_requested" in record:
        return (
            f"the calibration text {record.get('corpus')} is too short for {record['draws_requested']} disjoint draws "
            f"of {record['samples_requested']:,} windows: there are {record['draws']} of {record['samples']:,} windows "
            "each; give a longer text, or smaller --sizes"
        )
    return (
        f"the {record.get('role') or 'calibration'} text {record.get('corpus')} is too short: {record['samples']:,} of "
        f"the {record['samples_requested']:,} windows of {record.get('length')} tokens that were asked for; give a "
        "longer text, or ask for fewer"
    )
