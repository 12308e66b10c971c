"""Sets of rows made by hand: as text in a link, as a file, and compared with the masks of selectors."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dashboard.charts import palette
from dashboard.charts.series import ORDER_TITLES
from dashboard.pages.rows.scored import Scored
from engine.edits.mask_files import HAND_MADE, UNTOLD, mask_bytes, read_mask, spec_of
from engine.edits.masks import Mask
from engine.records.domain_names import with_names
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.stats.similarity import expected_random_jaccard, jaccard

NAME_CHARACTERS = 60
_RANGE = re.compile(r"(\d{1,12})(?:\s*[-–]\s*(\d{1,12}))?")


@dataclass(frozen=True)
class Kept:
    """A named mask of this session. spec: how its file says that its rows were chosen, None for ticked ones."""

    name: str
    rows: Mask
    spec: Json | None = None

    @property
    def made(self) -> str:
        """How the rows were chosen, in a few words."""
        spec = self.spec or {}
        if {"selector", "order", "rate"} <= spec.keys():
            return f"{spec['selector']}, {spec['order']}, rate {spec['rate']}"
        if {"selector", "domain", "lambda", "k"} <= spec.keys():
            return f"{spec['selector']}, {with_names(str(spec['domain']))}, lambda {spec['lambda']}, k {spec['k']}"
        return UNTOLD if spec.get("made") == UNTOLD else HAND_MADE


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


def checked_name(name: str, taken: Iterable[str]) -> str:
    """The name without spaces around it; `InputError` if it is empty, too long or taken."""
    stripped = name.strip()
    if not stripped or len(stripped) > NAME_CHARACTERS or not stripped.isprintable():
        got = f"{len(stripped):,}" if stripped.isprintable() else "some that cannot be printed"
        raise InputError(f"the name of a mask has 1 to {NAME_CHARACTERS} printable characters, got {got}")
    if stripped in taken:
        raise InputError(f"there is a mask called {stripped} already; choose another name or remove that one")
    return stripped


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


def compare(scored: Scored, rows: Mask, others: Iterable[Kept] = ()) -> pl.DataFrame:
    """A mask beside every selector's first rows in either order, as many as it has, and beside other kept masks.

    Columns compared_with, order, rows, common, jaccard, expected_random (mean Jaccard of two random sets of
    these sizes).
    """
    sets = [
        (palette.title(name), ORDER_TITLES[order], scored.mask(name, order, rows.size))
        for name in scored.selectors
        for order in ORDER_TITLES
    ]
    sets += [(kept.name, "kept mask", kept.rows) for kept in others]
    lines = []
    for title, order, other in sets:
        common = np.intersect1d(rows, other, assume_unique=True).size
        chance = expected_random_jaccard(scored.n_rows, rows.size, other.size)
        lines.append((title, order, other.size, common, jaccard(rows, other), chance))
    names = ["compared_with", "order", "rows", "common", "jaccard", "expected_random"]
    return pl.DataFrame(lines, schema=names, orient="row")
