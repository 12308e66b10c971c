"""What ships with the demo model, as the pages read it: scores, contrasts, operating points, example prompts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import precomputed
from dashboard.state.results import POINTS, read_table, stamp
from engine.records.errors import InputError
from engine.records.manifest import read_manifest

if TYPE_CHECKING:
    from engine.edits.contrasts import Contrast


def demo_results_dir() -> Path:
    """Where the shipped model's results lie."""
    return precomputed.demo_dir() / "results"


def demo_scores() -> dict[str, npt.NDArray[np.float32]]:
    """The shipped model's scores by selector; empty where absent."""
    path = demo_results_dir() / "scores.safetensors"
    return _scores(path, stamp(path)) if path.is_file() else {}


def demo_contrasts() -> dict[tuple[str, str], Contrast]:
    """The shipped model's contrasts by selector and domain, their checksum verified; empty where absent."""
    path = demo_results_dir() / "contrast.safetensors"
    return _contrasts(path, stamp(path)) if path.is_file() else {}


@lru_cache(maxsize=2)
def _contrasts(path: Path, _file_stamp: object) -> dict[tuple[str, str], Contrast]:
    from engine.edits.contrasts import load_contrasts

    return {(one.selector, one.domain): one for one in load_contrasts(path)[0]}


@lru_cache(maxsize=2)
def _scores(path: Path, _file_stamp: object) -> dict[str, npt.NDArray[np.float32]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path} is not readable ({error}); restore it from the repository or rebuild the shipped results"
        ) from None


def demo_model_is_there() -> bool:
    """Is the shipped model in its folder?"""
    return (precomputed.demo_model_dir() / "config.json").is_file()


def demo_weights_hash() -> str | None:
    """Hash of the weights that the shipped results were computed from; None where there are none."""
    if not (demo_results_dir() / "manifest.json").is_file():
        return None
    found = read_manifest(demo_results_dir()).get("model", {}).get("weights_hash")
    return str(found) if found else None


@dataclass(frozen=True)
class Example:
    """An example prompt for the live page. `kind` is `risk` or `base`."""

    domain: str
    kind: str
    prompt: str


def examples() -> list[Example]:
    """Example prompts: `examples.jsonl`, else the held-out half of `prompts.jsonl`, else none."""
    for name in ("examples.jsonl", "prompts.jsonl"):
        path = precomputed.demo_dir() / name
        if path.is_file():
            return _examples(path, stamp(path))
    return []


def held_out(domains: list[str], pairs: int) -> list[Example]:
    """The first held-out pairs of each domain, so many of each: risk prompts first, then base prompts."""
    path = precomputed.demo_dir() / "prompts.jsonl"
    if not path.is_file():
        return []
    of_kind = {"risk": list[Example](), "base": list[Example]()}
    for domain in domains:
        for kind, found in of_kind.items():
            found += [one for one in _held_out(path, stamp(path)) if (one.domain, one.kind) == (domain, kind)][:pairs]
    return [*of_kind["risk"], *of_kind["base"]]


@lru_cache(maxsize=2)
def _held_out(path: Path, _file_stamp: object) -> list[Example]:
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        kept = [record for record in records if record["split"] == "heldout"]
        return [Example(record["domain"], kind, record[kind]) for record in kept for kind in ("risk", "base")]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not readable ({error!r}); restore it from the repository") from None


def null_simulation() -> dict[str, Any]:
    """How often noise is called specific, simulated: `precomputed.null_simulation` says how."""
    path = precomputed.null_simulation_file()
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not readable ({error}); restore it from the repository") from None
    return found


@lru_cache(maxsize=2)
def _examples(path: Path, _file_stamp: object) -> list[Example]:
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if path.name == "examples.jsonl":
            return [Example(record["domain"], record["kind"], record["prompt"]) for record in records]
        held_out = [record for record in records if record["split"] == "heldout"]
        by_domain: dict[str, list[dict[str, str]]] = {}
        for record in held_out:
            by_domain.setdefault(record["domain"], []).append(record)
        few = [record for domain in by_domain.values() for record in domain[:3]]
        return [Example(r["domain"], kind, r[kind]) for r in few for kind in ("risk", "base")]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not readable ({error!r}); restore it from the repository") from None


@dataclass(frozen=True)
class OperatingPoint:
    """The cell of the grid chosen on calibration prompts, and held-out refusal rates before and after."""

    lam: float
    k: float
    before: float
    after: float
    pairs: int


def operating_point(selector: str, domain: str) -> OperatingPoint | None:
    """The measured point of the shipped model; None where none was measured or no cell was good enough."""
    if not (demo_results_dir() / f"{POINTS}.parquet").is_file():
        return None
    row = read_table(demo_results_dir(), POINTS).frame.filter(selector=selector, domain=domain)
    if row.height != 1 or row["lambda"][0] is None:
        return None
    names = ("lambda", "k", "unedited_malign", "edited_malign", "pairs")
    return OperatingPoint(*(row[name][0] for name in names))
