"""The masks of the operating points as files of the results folder, which export, chat and the page Rows take."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.data.pairs import pairs_record
from engine.edits.contrasts import MASK, mask_bytes, read_spec
from engine.edits.edit import Edit
from engine.judges.refusals import judge_record
from engine.models.loading import LoadedModel
from engine.records.files import remove, write_atomic
from engine.records.hashing import Json
from engine.records.manifest import add_to_manifest, drop_from_manifest

if TYPE_CHECKING:
    from engine.studies.refusal.operating_point import OperatingPoint
    from engine.studies.refusal.refusal_inputs import RefusalInputs

SEVERAL = "+"  # between the domains of a composed mask
_TABLE = "table"  # in a mask's spec: the table of its operating point


def of_point(run: RefusalInputs, edit: Edit, point: OperatingPoint, table: str) -> Edit:
    """The edit with a spec that says which operating point it is, for its file. Provenance, nothing to be trusted."""
    domains = [point.domain] if point.domain in run.calibration else point.domain.split(SEVERAL)
    spec: Json = {
        "kind": "refusal",
        "selector": point.selector,
        "domain": point.domain,
        "lambda": point.lam,
        "k": point.k,
        "rescue": point.rescue,
        "benign_cap": point.benign_cap,
        "calibration": {
            "pairs": {domain: pairs_record(run.plan.pairs, run.calibration[domain]) for domain in domains},
            "reply_tokens": run.plan.reply_tokens,
            **judge_record(run.judge),
        },
        _TABLE: table,
    }
    return replace(edit, kind="refusal", spec=spec)


def write_masks(folder: Path, loaded: LoadedModel, table: str, edits: Sequence[Edit], elapsed_s: float) -> None:
    """`mask-SELECTOR-DOMAIN.safetensors` for every edit, and its entry in the folder's manifest.
    What an earlier run of `table` left in the folder and is no longer a point goes."""
    names = mask_names([(str(edit.spec["selector"]), str(edit.spec["domain"])) for edit in edits])
    stale = [path for path in kept_masks(folder, table).values() if path.name not in names]
    drop_from_manifest(folder, [path.name for path in stale])
    for path in stale:
        remove(path, MASK)
    for name, edit in zip(names, edits, strict=True):
        write_atomic(folder / name, mask_bytes(edit.units, loaded.fingerprint, edit.spec), MASK)
        add_to_manifest(folder, loaded.fingerprint, name, edit.spec, elapsed_s)


def kept_masks(folder: Path, table: str) -> dict[tuple[str, str], Path]:
    """(selector, domain) -> the mask file that a run of `table` left in the folder."""
    specs = {path: read_spec(path) for path in sorted(folder.glob("mask-*.safetensors"))}
    return {(str(spec["selector"]), str(spec["domain"])): p for p, spec in specs.items() if spec.get(_TABLE) == table}


def mask_names(places: Iterable[tuple[str, str]]) -> list[str]:
    """One file name per selector and domain: of characters that every system takes, no two alike in any case."""
    places = list(places)
    # Without the mark of an id that stands for a name: a terminal would show the name, and no such file is there.
    plain = [re.sub(r"domain--|[^A-Za-z0-9_.+-]+", "-", f"{selector}-{domain}") for selector, domain in places]
    names = []
    for place, name in zip(places, plain, strict=True):
        alike = sum(name.casefold() == other.casefold() for other in plain) > 1
        if alike or len(name) > 80 or name != "-".join(place):
            name = f"{name[:80]}-{hashlib.sha256('/'.join(place).encode()).hexdigest()[:8]}"
        names.append(f"mask-{name}.safetensors")
    return names
