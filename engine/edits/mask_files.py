"""A mask as a file: int64 row ids in safetensors, with the manifest in its metadata."""

import re
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from engine.edits.edit import Kind
from engine.edits.masks import Mask, checked_mask
from engine.records import bounds
from engine.records.environment import environment
from engine.records.errors import InputError
from engine.records.files import FileKind, make_folder, tensors_metadata, write_atomic
from engine.records.hashing import SCHEMA_VERSION, Json, canonical
from engine.records.manifest import is_listed

HAND_MADE: Kind = "hand-made"  # `kind` in the spec of a mask whose rows a person chose
UNTOLD = "from a file"  # `made` in masks that an earlier Rows page passed on without their spec
_TENSOR = "removed"
_MADE = re.compile(r"(?P<selector>.+), (?P<order>lerf|morf), rate (?P<rate>\d+(\.\d+)?(e-\d+)?)")


def write_mask(path: Path, removed: Mask, model: Json, spec: Json) -> None:
    """Write the removed row ids and how they were chosen."""
    make_folder(path.parent)
    write_atomic(path, mask_bytes(removed, model, spec), MASK)


def mask_bytes(removed: Mask, model: Json, spec: Json) -> bytes:
    """What a mask file holds. model: at least `id` and `weights_hash`, which readers compare."""
    manifest = {"schema_version": SCHEMA_VERSION, "model": model, "spec": spec, "environment": environment()}
    return save({_TENSOR: removed}, metadata={"manifest": canonical(manifest)})


def read_mask(path: Path, n_rows: int, weights_hash: str | None = None) -> tuple[Mask, Json]:
    """The row ids and the manifest of a mask file. `weights_hash`: of the model that will carry the mask; one made for
    other weights is an `InputError`, since its row ids mean other rows there."""
    try:
        bounds.tensors(path, 8 * n_rows)
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            removed = np.asarray(file.get_tensor(_TENSOR))
        manifest = bounds.parsed(metadata["manifest"])
    except (OSError, SafetensorError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a mask file ({error}); write one with `selector-audit mask`") from None
    made_for = manifest.get("model") if isinstance(manifest, dict) else None
    if not isinstance(made_for, dict) or not isinstance(made_for.get("weights_hash"), str):
        raise InputError(
            f"{path} is not a mask file: its manifest names no model; write one with `selector-audit mask`"
        )
    if weights_hash is not None and made_for["weights_hash"] != weights_hash:
        raise InputError(
            f"{path} was made for {made_for.get('id')} (weights {made_for['weights_hash'][:12]}), the loaded model has "
            f"weights {weights_hash[:12]}; make the mask again for this model"
        )
    return checked_mask(removed, n_rows), manifest


def read_spec(path: Path) -> Json:
    """The spec of a mask file, for whom it is looked for by it; empty for any other file."""
    return spec_of(_manifest(path))


def _manifest(path: Path) -> Json:
    """The manifest in a mask file; empty for any other file."""
    try:
        manifest = bounds.parsed(tensors_metadata(path).get("manifest", ""))
    except (ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _is_mask(path: Path) -> bool:
    """By tensor and manifest; one that a results folder lists may be damaged."""
    if path.name.startswith("mask-") and is_listed(path):
        return True
    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
    except (OSError, SafetensorError):
        return False
    return names == [_TENSOR] and isinstance(_manifest(path).get("model"), dict)


MASK = FileKind("a mask file", _is_mask)


def spec_of(manifest: Json) -> Json:
    """How the rows were chosen: the manifest's spec, empty where there is none.
    Masks downloaded by an earlier Rows page have a `made` instead: `hand-made`, `lrp, lerf, rate 0.3` or `UNTOLD`."""
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        return {}
    made = spec.get("made")
    if not isinstance(made, str) or "kind" in spec:
        return spec
    if match := _MADE.fullmatch(made):
        return {**match.groupdict(), "rate": float(match["rate"])}
    return {"kind": HAND_MADE, **spec} if made in (HAND_MADE, UNTOLD) else spec
