"""What is stored beside every number: the manifest of a results folder, and keys of cached cells.

Imports neither torch nor transformers, so that readers of results stay quick.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from engine.errors import InputError

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
_LIBRARIES = ("torch", "transformers", "lxt", "tokenizers", "datasets", "numpy", "safetensors")
_NUMERIC = ("torch", "transformers", "lxt")  # a change of one of these may change a number
_NOT_DATA = ":(exclude)precomputed/demo"  # a git pathspec

Json = dict[str, Any]


def canonical(spec: Mapping[str, Any]) -> str:
    """One spelling of a spec: sorted keys, no spaces. Equal specs give equal text in every process."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def cache_key(kind: str, spec: Mapping[str, Any]) -> str:
    """Key of a cached result: a hash over everything that can change the number.

    `spec` holds the model's weights hash and dtype, the tokens' hash, the selector or the mask; added
    here are the schema version and the versions of the libraries that do the arithmetic.
    """
    libraries = {name: installed_version(name) for name in _NUMERIC}
    whole = {"kind": kind, "schema": SCHEMA_VERSION, "libraries": libraries, "spec": spec}
    return hashlib.sha256(canonical(whole).encode()).hexdigest()


@cache
def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def environment() -> Json:
    """Versions of everything that took part, and the commit when run from a checkout."""
    return {
        "selector-audit": installed_version("selector-audit"),
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "libraries": {name: installed_version(name) for name in _LIBRARIES},
    }


@cache
def git_commit() -> str | None:
    """Commit of the checkout this code runs from (`+changes` when its files differ), None outside one.

    The shipped data do not count: building them changes them, and they have checksums of their own.
    """
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", _NOT_DATA)
        return f"{commit}+changes" if changed else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomic(path: Path, content: bytes) -> None:
    """Write so that `path` holds the old bytes or the new ones, never a part: a temporary name, fsync, replace."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_parquet(path: Path, table: pl.DataFrame) -> None:
    """A tidy table, atomically; equal tables give equal bytes."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd", statistics=True)
    write_atomic(path, buffer.getvalue())


def read_manifest(folder: Path) -> Json:
    """The manifest of a results folder; an `InputError` where it is absent, broken or from a newer version."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {MANIFEST}; give a folder that `selector-audit` wrote with --out"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); make it readable") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} is not readable JSON ({error}); delete the folder and run the command again"
        ) from None
    found = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(found, int) or found > SCHEMA_VERSION:
        raise InputError(
            f"{path} has schema version {found!r}, this software reads up to {SCHEMA_VERSION}; upgrade it"
        )
    files = manifest.get("files", {})
    known = isinstance(files, dict) and all(isinstance(entry, dict) for entry in files.values())
    if not known or not isinstance(manifest.get("model", {}), dict):
        raise InputError(
            f"{path}: model, files and every entry of files must be JSON objects; another program wrote it; "
            "run the command again into another folder"
        )
    return manifest


def add_to_manifest(folder: Path, model: Json, filename: str, spec: Json, wall_time_s: float) -> Json:
    """Record `filename`, just written into `folder`, in the folder's manifest; returns the file's entry.

    A folder holds the results of one model: another model's weights or dtype are an `InputError`.
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
    manifest["model"] = model
    manifest["files"][filename] = entry
    write_atomic(path, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    return entry


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


class Stopwatch:
    """Wall time since it was made, in seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start
