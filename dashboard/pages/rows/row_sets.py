"""Sets of rows made by hand: as text in a link, and as a file."""

import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dashboard.pages.rows.scored import Scored
from engine.edits.mask_files import HAND_MADE, UNTOLD, mask_bytes, read_mask, spec_of
from engine.edits.masks import Mask
from engine.records.errors import InputError
from engine.records.hashing import Json

_RANGE = re.compile(r"(\d{1,12})(?:\s*[-–]\s*(\d{1,12}))?")


@dataclass(frozen=True)
class Kept:
    """A named mask. spec: how its file says that its rows were chosen, None for ticked ones."""

    name: str
    rows: Mask
    spec: Json | None = None


def parse(text: str, n_rows: int) -> Mask:
    """`3, 8-10` -> ascending row ids. `InputError` for what is no id or range of this model's rows."""
    chosen: set[int] = set()
    for part in re.split(r"[,\s]+", re.sub(r"\s*[-–]\s*", "-", text.strip())):
        if not part:
            continue
        match = _RANGE.fullmatch(part)
        if match is None:
            raise InputError(f"row ids are whole numbers and ranges such as 3, 8-10; got {part!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= n_rows or first > last:
            raise InputError(f"row ids of this model go from 0 to {n_rows - 1}, got {part}")
        chosen.update(range(first, last + 1))
    return np.array(sorted(chosen), dtype=np.int64)


def write(rows: Iterable[int]) -> str:
    """Row ids -> `3, 8-10`, as short as it gets."""
    runs: list[list[int]] = []
    for row in sorted(set(map(int, rows))):
        if runs and row == runs[-1][1] + 1:
            runs[-1][1] = row
        else:
            runs.append([row, row])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def file_name(name: str) -> str:
    """A name for the file of a mask, of characters that every system takes."""
    return (re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "mask") + ".safetensors"


def export(kept: Kept, model: dict[str, Any]) -> bytes:
    """A mask file, as `selector-audit mask` writes one; its manifest says how the rows were chosen, by hand or not."""
    spec = {"kind": HAND_MADE, "name": kept.name} if kept.spec is None else kept.spec
    return mask_bytes(kept.rows, model, spec)


def load(content: bytes, name: str, scored: Scored) -> Kept:
    """The mask of an uploaded file. `InputError` for another file, other weights, or rows of another model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mask.safetensors"
        path.write_bytes(content)
        try:
            rows, manifest = read_mask(path, scored.n_rows, scored.model.get("weights_hash"))
        except InputError as error:
            raise InputError(str(error).replace(str(path), name)) from None
    spec = spec_of(manifest)
    return Kept(name, rows, spec if {"kind", "order", "lambda"} & spec.keys() else {"kind": HAND_MADE, "made": UNTOLD})
