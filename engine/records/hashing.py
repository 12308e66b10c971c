"""One spelling of a spec, keys of cached results, checksums. Imports neither torch nor transformers."""

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from engine.records.environment import distributions_of, installed_version

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
