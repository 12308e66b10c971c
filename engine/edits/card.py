"""The model card of an exported checkpoint: what was removed, what that did, and where everything came from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from huggingface_hub import ModelCard, ModelCardData

from engine.edits.contrasts import UNTOLD
from engine.edits.edit import Edit
from engine.edits.edit_effect import BROKEN, FEW, Change, Effect, total
from engine.models.checkpoints import Checkpoint
from engine.models.row_index import RowIndex
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.hashing import Json, canonical, environment, file_sha256
from engine.records.manifest import read_manifest
from engine.records.terminal import as_text
from engine.results.folders import read_table

WARNING = "diagnostic artifact, not for deployment"
_OVER_REFUSAL = re.compile(r"benign|over_?refusal|or_?bench|xstest")
_UTILITY = re.compile(r"nll|perplexity|mmlu|gsm8k|ifeval|accuracy|utility")
_TAGS = {"refusal": "refusal-edit", "language model": "pruned", "hand-made": "hand-made-edit"}
# What the record says about the edit itself must be what is exported.
_SAME = ("selector", "domain", "lambda", "k", "rows_removed", "order", "rate")


@dataclass(frozen=True)
class CardRecord:
    """What is known about an edit: one flat entry per number, as `operating_points.parquet` holds them."""

    source: str
    values: Json

    def check(self, edit: Edit) -> None:
        """`InputError` where the record is about another edit."""
        exported = {**edit.spec, "rows_removed": edit.size}
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
    weights_hash: of the exported checkpoint; `InputError` for a folder of another model's results."""
    if path.suffix == ".parquet":
        values = _table_row(path, edit, weights_hash)
    else:
        try:
            loaded = bounds.json_of(path)
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read as JSON ({error}); give a JSON object or a .parquet") from None
        if not isinstance(loaded, dict):
            raise InputError(f"{path} holds a {type(loaded).__name__}; expected one JSON object")
        values = _flat(loaded)
    record = CardRecord(path.name, values)
    record.check(edit)
    return record


def _table_row(path: Path, edit: Edit, weights_hash: str) -> Json:
    table = read_table(path.parent, path.stem)
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
    spec = read_manifest(path.parent)["files"][path.name].get("spec", {})
    limits = {name: spec[name] for name in ("benign_limit", "max_nll") if name in spec}
    return {key: value for key, value in table.row(0, named=True).items() if key != "model"} | limits


def _flat(values: Mapping[str, Any], prefix: str = "") -> Json:
    flat: Json = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def model_card(
    checkpoint: Checkpoint, edit: Edit, rows: RowIndex, exported_hash: str, effect: Effect, record: CardRecord | None,
    *, files: str,
) -> str:  # fmt: skip
    """README.md of the exported folder: YAML front matter and Markdown, by the template `card.md.jinja`. files: hashes
    of the other files of the folder (`card_claims.file_hashes`)."""
    known = record.values if record else {}
    over_refusal = {key: value for key, value in known.items() if _OVER_REFUSAL.search(key.lower())}
    utility = {key: value for key, value in known.items() if _UTILITY.search(key.lower()) and key not in over_refusal}
    point = {key: value for key, value in known.items() if key not in over_refusal and key not in utility}
    chosen = {
        key: value
        for key, value in edit.spec.items()
        if not isinstance(value, dict | list) and key not in ("weights_hash", "kind", "table")  # said elsewhere
    }
    named = checkpoint.revision is not None  # on the hub
    packed = checkpoint.dequantized_from
    provenance = {
        "source": checkpoint.name,
        "source revision": checkpoint.revision or ("a local file" if checkpoint.gguf else "a local folder"),
        "source weights (SHA-256 over the SHA-256s of the weight files)": checkpoint.weights_hash(),
        **({"source weights packed as": packed} if packed else {}),
        "mask (SHA-256 of the row ids)": edit.mask_hash,
        "exported weights (likewise)": exported_hash,
        **({"numbers from": record.source} if record else {}),
        **{key: value for key, value in _flat(environment()).items() if value is not None},
    }
    size = {"rows removed": edit.size, "share of rows": f"{edit.size / rows.n_rows:.4%}"}
    about = [one for one in (few_refused(effect), lowered(effect, known), MEASURED) if one]
    sections = (
        ("The edit", "", {**chosen, **size}, ""),
        ("Refusal", "\n\n".join(about), effect.values(), ""),
        ("Caps", "", dict(caps(effect, known)), "No rate that has a cap was measured."),
        ("Operating point", _rescue(known), point, "No record of an operating point was given."),
        ("Over-refusal", "", over_refusal, "Not measured, or not given: expect refusals of harmless requests as well."),
        ("Utility", "", utility, "Not measured, or not given."),
        ("Provenance", "", provenance, ""),
    )
    front_matter = ModelCardData(
        library_name="transformers", pipeline_tag="text-generation", inference=False,
        base_model="/".join(checkpoint.id.split("/")[:2]) if named else None,
        tags=["selector-audit", _TAGS[edit.kind], "diagnostic-artifact"],
    )  # fmt: skip
    card = ModelCard.from_template(
        front_matter,
        template_path=str(Path(__file__).with_name("card.md.jinja")),
        name=as_text(checkpoint.name), rewritten=as_text(packed or ("GGUF" if checkpoint.gguf else "")),
        stored_in=stored_in(effect), removed=f"{edit.size:,}", n_rows=f"{rows.n_rows:,}", files=files,
        warning=WARNING, broken=broken(effect), kind=edit.kind, drawn=edit.spec.get("selector") == "random",
        domain=as_text(str(edit.spec.get("domain", "one domain")).replace("+", " and ")),
        loading=loading(effect.about.get("dtype")), measured_in=str(effect.about.get("dtype", "")),
        chosen_by="in a way that its mask file does not tell" if edit.spec.get("made") == UNTOLD else "by hand",
        sections=[(title, said, [(_cell(key), _cell(one)) for key, one in values.items()], otherwise)
                  for title, said, values, otherwise in sections],
    )  # fmt: skip
    return f"{card.content}\n"


def _rescue(known: Json) -> str:
    if "rescue" not in known:
        return ""
    if known["rescue"]:
        return (
            "**Rescue point:** on the calibration pairs no cell of the grid was within the caps, and this one was "
            "taken under a looser cap of refused base prompts."
        )
    return "Not a rescue point: on the calibration pairs the cell is within the caps."


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else "not measured" if value is None else str(value)
    return as_text(text)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


MEASURED = (
    "Replies of the source and of the edited model to the same prompts, measured before this checkpoint was written. "
    "It is written only where the edited model refuses, over all domains together, no fewer of the shipped risk "
    "prompts and no fewer of the risk prompts of the pairs that were given, and no fewer in a domain of the edit's "
    "own. A reply that the judge could not read counts on neither side. Nothing is known of other prompts."
)
DTYPES = ("float32", "bfloat16", "float16")


def loading(dtype: object) -> str:
    """The lines that load the checkpoint from its own folder as it was measured."""
    first, wanted = ("import torch\n", f"torch.{dtype}") if str(dtype) in DTYPES else ("", '"auto"')
    return f"""{first}from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # this folder
model = AutoModelForCausalLM.from_pretrained(folder, dtype={wanted})
tokenizer = AutoTokenizer.from_pretrained(folder)"""


def stored_in(effect: Effect) -> str:
    """The dtype in which weights are written that were packed: that of the measurement."""
    return str(effect.about.get("dtype", "float32"))


def file_hashes(folder: Path, *, but: str) -> str:
    """`sha256sum --check` reads these lines: every file of the folder but one, the card itself."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != but)
    return "\n".join(f"{file_sha256(path)}  {path.name}" for path in files)


def few_refused(effect: Effect) -> str:
    """That the shipped prompts say little of a model that refuses almost none of them; empty for another."""
    n, before, after = total(effect.shipped)
    if before >= FEW:
        return ""
    return (
        f"**The source refuses {before} of the {n} shipped risk prompts, the edited model {after}: nothing could be "
        "lowered on them**, so that they do not tell whether this edit lowers refusal."
    )


def broken(effect: Effect) -> str:
    """A warning where the edited model is broken; empty where it is not."""
    if not effect.broken:
        return ""
    return f"**BROKEN:** {effect.on_text()}, more than {BROKEN:g} times as much. It was exported with `--allow-broken`."


def lowered(effect: Effect, known: Json) -> str:
    """A warning with every other domain, and every number of a record, in which refusal fell though no sum did; empty
    where there is none."""
    changes = {**{f"{domain} (shipped prompts)": one for domain, one in effect.shipped.items()}, **effect.malign}
    fell = [
        f"{name} {one.after} of {one.n}, without the edit {one.before}"
        for name, one in changes.items()
        if one.after < one.before
    ]
    before, after = _numbers(known, "unedited_malign", "edited_malign") or (0.0, 0.0)
    if after < before:
        domain = known.get("domain", "in the record")
        fell.append(f"{domain} {after:.3f}, without the edit {before:.3f} (the record)")
    return f"**Warning:** no sum over domains fell, but refusal did in: {as_text('; '.join(fell))}." if fell else ""


def caps(effect: Effect, known: Json) -> Iterator[tuple[str, str]]:
    """Every measured rate beside the cap that it meets or breaks, by counts: 12 of 100 break a cap of 0.1. known: a row
    of `operating_points`, with the limits of its manifest where it came from a results folder."""
    for domain, one in effect.benign.items():
        yield f"{domain}, base prompts refused, before this export", _against(one, effect.benign_limit)
    if found := _numbers(known, "benign_limit", "edited_benign", "pairs"):
        limit, rate, n = found
        prompts = "held-out" if known.get("heldout") else "calibration"
        refused = Change(int(n), 0, round(rate * n))
        yield f"{prompts} base prompts refused (the record)", _against(refused, limit)
        if known.get("rescue") and (cap := _numbers(known, "benign_cap")):
            yield f"{prompts} base prompts refused, the rescue's own cap", _against(refused, cap[0])
    if found := _numbers(known, "edited_nll", "max_nll"):
        nll, most = found
        verdict = "meets" if nll <= most else "breaks"
        yield "NLL of the evaluation text (the record)", f"{nll:.4f} nats per token, {verdict} the cap of {most:.4f}"


def _against(found: Change, cap: float) -> str:
    verdict = "meets" if found.after <= cap * found.n + 1e-9 else "breaks"
    return f"{found.after} of {found.n}, {verdict} the cap of {cap:g}"


def _numbers(known: Json, *names: str) -> tuple[float, ...]:
    """These entries; none of them unless all are numbers."""
    entries: list[Any] = [known.get(name) for name in names]
    return tuple(entries) if all(map(_is_number, entries)) else ()
