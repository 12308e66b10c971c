"""What stands beside every number: what ran (versions of everything that took part, and the commit), one spelling of a
spec, keys of cached results, checksums. Imports neither torch nor transformers."""

import hashlib
import inspect
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any, cast

from engine.records.errors import InputError

_LIBRARIES = ("torch", "transformers", "lxt", "tokenizers", "datasets", "numpy", "safetensors")
TESTED = Path(__file__).with_name("tested_versions.txt")
_MOST_THREADS = 1_024  # each has a stack of its own
_NOT_DATA = ":(exclude)precomputed/demo"  # a git pathspec


def check_threads() -> None:
    """`InputError` for a number of threads at which polars panics instead of reading its first table."""
    given = os.environ.get("POLARS_MAX_THREADS", "")
    if given.strip().removeprefix("+").isdecimal() and not 1 <= int(given) <= _MOST_THREADS:
        raise InputError(
            f"POLARS_MAX_THREADS must be in 1 to {_MOST_THREADS:,}, got {given}; unset it, or give the number of cores"
        )


@cache
def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def tested_versions() -> dict[str, str]:
    """The release of each package with which all tests last passed, by its name: the lines of `TESTED`."""
    lines = TESTED.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==", 1) for line in lines if line and not line.startswith("#"))


@cache
def distributions_of(package: str) -> tuple[str, ...]:
    """The installed distributions that bring a top-level package, by name; asks every one once, about a second."""
    return tuple(sorted(set(packages_distributions().get(package, ()))))


def environment() -> dict[str, Any]:
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
    The shipped data do not count: building them changes them, and they have checksums of their own."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", _NOT_DATA)
        return f"{commit}+changes" if changed else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    words = ["git", "-C", str(root), *arguments]  # of the user's own PATH, in this software's own folder
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)  # nosec B603 # no shell
    return done.stdout.strip()


Json = dict[str, Any]
SCHEMA_VERSION = 1
_NUMERIC = ("torch", "transformers", "lxt")  # a change of one of these may change a number
# Without lxt no number comes from its rules, so that one measured then is the same with the oldest lxt that is taken:
# whoever installs it later keeps what was measured before.
_ABSENT = {"lxt": "2.1"}


def canonical(spec: Mapping[str, Any]) -> str:
    """One spelling of a spec: sorted keys, no spaces. Equal specs give equal text in every process."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def cache_key(kind: str, spec: Mapping[str, Any]) -> str:
    """Key of a cached result: a hash over everything that can change the number: `spec` (the model's weights hash and
    dtype, the tokens' hash, the selector or the mask), schema version, and versions of the libraries that do the
    arithmetic."""
    libraries = {name: installed_version(name) or _ABSENT.get(name) for name in _NUMERIC}
    whole = {"kind": kind, "schema": SCHEMA_VERSION, "libraries": libraries, "spec": spec}
    return hashlib.sha256(canonical(whole).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def source_hash(definition: object) -> str:
    """What a plug-in's cached numbers are good for: its module's file and its distribution's version; "" for our own
    classes, which count by their `version`. Without a file (a notebook), the definition's own source or name."""
    module = str(getattr(definition, "__module__", "?"))
    if module.startswith("engine."):
        return ""
    try:
        source = Path(str(sys.modules[module].__file__)).read_bytes()
    except (OSError, KeyError, AttributeError):
        try:
            source = inspect.getsource(cast(type, definition)).encode()
        except (OSError, TypeError):
            source = f"{module}.{getattr(definition, '__qualname__', '?')}".encode()
    versions = [f"{name} {installed_version(name)}" for name in distributions_of(module.partition(".")[0])]
    return "/" + hashlib.sha256(source + canonical({"versions": versions}).encode()).hexdigest()[:16]


def source_record(definition: object) -> Json:
    """`source_hash` for a key in which our own classes leave no trace."""
    source = source_hash(definition)
    return {"source": source} if source else {}
