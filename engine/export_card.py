"""The model card of an exported checkpoint: what was removed, what that did, and where everything came from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.checkpoints import DEMO, Checkpoint
from engine.errors import InputError
from engine.masks import Mask
from engine.records import Json, canonical, environment, read_manifest
from engine.refusal.edit import Edit
from engine.rows import RowIndex
from engine.tables import read_table

WARNING = "diagnostic artifact, not for deployment"
_OVER_REFUSAL = re.compile(r"benign|over_?refusal|or_?bench|xstest")
_UTILITY = re.compile(r"nll|perplexity|mmlu|gsm8k|ifeval|accuracy|utility")
# What the record says about the edit itself must be what is exported.
_SAME = ("selector", "domain", "lambda", "k", "rows_removed", "order", "rate")


@dataclass(frozen=True)
class CardRecord:
    """What is known about an edit: one flat entry per number, as `operating_points.parquet` holds them."""

    source: str
    values: Json

    def check(self, edit: Edit) -> None:
        """`InputError` where the record is about another edit."""
        exported = {**edit.spec, "rows_removed": len(edit.mask)}
        for field in _SAME:
            if field not in self.values or field not in exported:
                continue
            there, here = self.values[field], exported[field]
            same = abs(there - here) < 1e-9 if _is_number(there) and _is_number(here) else there == here
            if not same:
                raise InputError(
                    f"{self.source} is about {field} {there}, the exported edit has {here}; "
                    "give the record of this edit"
                )


def read_record(path: Path, edit: Edit, weights_hash: str) -> CardRecord:
    """A JSON object, or from a table of a results folder the row with this edit's selector, domain, lambda and k.

    weights_hash: of the exported checkpoint; `InputError` for a folder of another model's results.
    """
    if path.suffix == ".parquet":
        values = _table_row(path, edit, weights_hash)
    else:
        try:
            loaded = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} cannot be read as JSON ({error}); give a JSON object or a .parquet"
            ) from None
        if not isinstance(loaded, dict):
            raise InputError(f"{path} holds a {type(loaded).__name__}; expected one JSON object")
        values = _flat(loaded)
    record = CardRecord(path.name, values)
    record.check(edit)
    return record


def _table_row(path: Path, edit: Edit, weights_hash: str) -> Json:
    import polars as pl

    table = read_table(path.parent, path.stem, "selector-audit refusal select MODEL")
    model = read_manifest(path.parent).get("model") or {}
    if model.get("weights_hash") != weights_hash:
        raise InputError(
            f"{path} holds results of {model.get('id')} (weights {str(model.get('weights_hash'))[:12]}), the exported "
            f"model has weights {weights_hash[:12]}; give the record of this model"
        )
    for field in ("selector", "domain", "lambda", "k"):
        if field in edit.spec and field in table.columns:
            value = edit.spec[field]
            close = (pl.col(field) - value).abs() < 1e-9 if _is_number(value) else pl.col(field) == value
            table = table.filter(close)
    if len(table) != 1:
        raise InputError(
            f"{path} has {len(table)} rows for the exported edit {canonical(edit.spec)}; expected one: the operating "
            "point that is exported, or leave --record out"
        )
    return {key: value for key, value in table.row(0, named=True).items() if key != "model"}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Json:
    flat: Json = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def mask_hash(mask: Mask) -> str:
    """SHA-256 over the removed row ids, ascending, as little-endian int64."""
    return hashlib.sha256(np.ascontiguousarray(mask, dtype="<i8").tobytes()).hexdigest()


def model_card(
    checkpoint: Checkpoint, edit: Edit, rows: RowIndex, exported_hash: str, record: CardRecord | None
) -> str:
    """README.md of the exported folder: YAML front matter and Markdown."""
    known = record.values if record else {}
    over_refusal = {key: value for key, value in known.items() if _OVER_REFUSAL.search(key.lower())}
    utility = {
        key: value for key, value in known.items() if _UTILITY.search(key.lower()) and key not in over_refusal
    }
    point = {key: value for key, value in known.items() if key not in over_refusal and key not in utility}
    what = (
        "A refusal edit: rows that promote complying with one domain of harm are removed, so that the model "
        "refuses it. Refusal can only be installed this way, not removed."
        if edit.kind == "refusal"
        else "A pruned language model: the rows that a selector calls least relevant (LeRF) are removed. "
        "It says nothing about refusal."
    )
    chosen = {
        key: value
        for key, value in edit.spec.items()
        if not isinstance(value, dict | list) and key != "weights_hash"  # stands under provenance
    }
    parts = [
        _front_matter(checkpoint, edit),
        f"# {_name(checkpoint)} with {len(edit.mask):,} of {rows.n_rows:,} rows removed\n",
        f"**This checkpoint is a {WARNING}.**\n",
        f"{what} A removed row is a row of a Linear layer whose weights and bias are zero; every other byte of the "
        "weight files is the source's. It loads with `AutoModelForCausalLM.from_pretrained` (or the auto class of "
        "the source) and needs no other code.\n",
        "## The edit\n",
        _table(
            {**chosen, "rows removed": len(edit.mask), "share of rows": f"{len(edit.mask) / rows.n_rows:.4%}"}
        ),
        "## Operating point\n",
        _rescue(known),
        _section(point, "No record of an operating point was given."),
        "## Over-refusal\n",
        _section(over_refusal, "Not measured, or not given: expect refusals of harmless requests as well."),
        "## Utility\n",
        _section(utility, "Not measured, or not given."),
        "## Provenance\n",
        _table(
            {
                "source": _name(checkpoint),
                "source revision": checkpoint.revision or "a local folder",
                "source weights (SHA-256)": checkpoint.weights_hash(),
                "mask (SHA-256 of the row ids)": mask_hash(edit.mask),
                "exported weights (SHA-256)": exported_hash,
                **({"numbers from": record.source} if record else {}),
                **{key: value for key, value in _flat(environment()).items() if value is not None},
            }
        ),
        "The licence of the source model applies to this checkpoint.\n",
    ]
    return "\n".join(part for part in parts if part)


def _front_matter(checkpoint: Checkpoint, edit: Edit) -> str:
    lines = ["library_name: transformers", "pipeline_tag: text-generation"]
    if checkpoint.revision is not None:  # a name on the hub; a local folder's path means nothing to a reader
        lines.append(f"base_model: {json.dumps(checkpoint.id)}")
    kind = "refusal-edit" if edit.kind == "refusal" else "pruned"
    lines += ["tags:", "- selector-audit", f"- {kind}", "- diagnostic-artifact", "inference: false"]
    return "---\n" + "\n".join(lines) + "\n---\n"


def _name(checkpoint: Checkpoint) -> str:
    if checkpoint.revision is not None or checkpoint.id == DEMO:
        return checkpoint.id
    return checkpoint.folder.resolve().name


def _rescue(known: Json) -> str:
    if "rescue" not in known:
        return ""
    if known["rescue"]:
        return (
            "**Rescue point:** no cell of the grid kept refusals of harmless prompts within the cap, and this one was "
            "taken under a looser cap.\n"
        )
    return "Not a rescue point: the cell kept within the caps.\n"


def _section(values: Json, otherwise: str) -> str:
    return _table(values) if values else f"{otherwise}\n"


def _table(values: Mapping[str, Any]) -> str:
    lines = ["| | |", "|---|---|"]
    lines += [f"| {_cell(key)} | {_cell(value)} |" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else "not measured" if value is None else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
