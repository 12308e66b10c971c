"""Manifests of results folders changed as somebody with an editor would."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.records.hashing import file_sha256
from engine.records.manifest import MANIFEST, read_manifest


@contextmanager
def edited(folder: Path) -> Iterator[Any]:
    """The folder's manifest, in which every entry holds all that is its own; written back when the block ends."""
    manifest = json.loads(json.dumps(read_manifest(folder)))
    yield manifest
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def resealed(folder: Path, name: str) -> None:
    """The checksum in the manifest fits the file as it is now."""
    with edited(folder) as manifest:
        manifest["files"].setdefault(name, {"spec": {}, "environment": {}})["sha256"] = file_sha256(folder / name)
