"""What ships with the software, as the pages read it: its models and their results, scores, contrasts, prompts."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import engine
import precomputed
from dashboard.charts.formats import model_title
from dashboard.state import scores
from dashboard.state.results import POINTS, read_table, while_unchanged
from engine.edits.contrasts import Contrast, load_contrasts
from engine.models.gguf_files import SMOLLM2, packaged
from engine.records.errors import InputError
from engine.records.manifest import read_manifest

DEMO = "demo"
TITLES = {SMOLLM2: "SmolLM2-135M", DEMO: "Shipped model"}  # what pages call the models that need no download
GEMMA = "gemma3-270m"  # its results ship; its weights are to be had from their makers
IDS = {title: model for model, title in TITLES.items()} | {"Gemma-3-270m": GEMMA}
FIRST_VARIABLE = "SELECTOR_AUDIT_MODEL"  # of the environment: the one that the app begins with
GENERAL_QUESTIONS = (
    "What is the capital of Japan?",
    "What is the capital of France?",
    "Why is the sky blue?",
    "Write two sentences about the sea.",
    "What is the difference between a lake and a river?",
)
_OF_DOMAIN = 2  # pairs among the examples


def model_is_there(model: str) -> bool:
    """Is the demo in its folder, or is the package of SmolLM2 installed? Nothing is imported of it."""
    if model == DEMO:
        return (precomputed.demo_model_dir() / "config.json").is_file()
    with suppress(InputError):
        return packaged().is_file()
    return False


def models() -> list[str]:
    """The models that can answer without a download, the one that the app begins with first."""
    known = [model for model in TITLES if model == DEMO or model_is_there(model)]
    return sorted(known, key=lambda model: model != os.environ.get(FIRST_VARIABLE))


def folders() -> dict[str, Path]:
    """Results folder of each shipped audit by its title, that of the app's first model first, those without a model
    last."""
    by_title = {SMOLLM2: precomputed.smollm2_dir() / "results", DEMO: demo_results_dir()}
    kept = {model: folder for model, folder in by_title.items() if model == DEMO or folder.is_dir()}
    first = next((model for model in models() if model in kept), DEMO)
    by_title = {TITLES[model]: kept[model] for model in sorted(kept, key=lambda model: model != first)}
    gemma = precomputed.gemma_dir() / "results"
    return by_title | ({"Gemma-3-270m": gemma} if gemma.is_dir() else {})


def model_of(folder: Path) -> str | None:
    """The id of the model that a shipped results folder is of; None for any other folder."""
    return next((IDS[title] for title, one in folders().items() if one == folder), None)


def title_of(model: str) -> str:
    return TITLES.get(model) or model_title(model)


def scored_folder(model: str) -> Path | None:
    """The shipped results folder with scores of a model; None without one."""
    folder = folders().get(TITLES.get(model, ""))
    return folder if folder is not None and (folder / scores.SCORES).is_file() else None


def demo_results_dir() -> Path:
    return precomputed.demo_dir() / "results"


def scores_of(weights_hash: str, selector: str, n_rows: int) -> npt.NDArray[np.float32] | None:
    """The shipped scores [N] of a selector for these weights, of a seeded one its first seed's; None without them."""
    for folder in folders().values():
        fits = (folder / scores.SCORES).is_file() and _weights_hash(folder) == weights_hash
        if fits and selector in scores.selectors_in(folder):
            return scores.scores_for(folder, selector, weights_hash, n_rows)
    return None


@while_unchanged(2, lambda: (demo_results_dir() / "contrast.safetensors",))
def demo_contrasts() -> dict[tuple[str, str], Contrast]:
    """The shipped model's contrasts by selector and domain, their checksum verified; empty where absent."""
    path = demo_results_dir() / "contrast.safetensors"
    return {(one.selector, one.domain): one for one in load_contrasts(path)[0]} if path.is_file() else {}


def weights_hash_of(model: str) -> str | None:
    """Hash of the weights that the results of a shipped model were computed from; None where there are none."""
    folder = folders().get(TITLES.get(model, ""))
    return _weights_hash(folder) if folder is not None else None


def _weights_hash(folder: Path) -> str | None:
    if not (folder / "manifest.json").is_file():
        return None
    weights_hash = read_manifest(folder).get("model", {}).get("weights_hash")
    return str(weights_hash) if weights_hash else None


@dataclass(frozen=True)
class Example:
    """An example prompt for the live page. `kind` is `risk` or `base`."""

    domain: str
    kind: str
    prompt: str


def examples(model: str = DEMO) -> list[Example]:
    """Example prompts: of the demo `examples.jsonl`, else some held-out ones of its town; of any other model general
    questions, then some of the shipped prompts that every edit is measured on."""
    path = precomputed.demo_dir() / "examples.jsonl"
    if model == DEMO and path.is_file():
        return [
            Example(one["domain"], one["kind"], one["prompt"]) for one in _records(path, "domain", "kind", "prompt")
        ]
    domains = list(dict.fromkeys(one.domain for one in _held_out(model)))
    general = [Example("", "base", prompt) for prompt in GENERAL_QUESTIONS if model != DEMO]
    return general + held_out(domains, _OF_DOMAIN, model)


def held_out(domains: list[str], pairs: int, model: str = DEMO) -> list[Example]:
    """The first held-out pairs of each domain, so many of each, of any model but the demo of the shipped prompts: risk
    prompts first, then base prompts."""
    return [
        one
        for kind in ("risk", "base")
        for domain in domains
        for one in [two for two in _held_out(model) if (two.domain, two.kind) == (domain, kind)][:pairs]
    ]


def own_prompts(model: str) -> list[str]:
    """What a model was trained on prompts like: every fifth held-out one of the demo; none of any other model."""
    return [one.prompt for one in _held_out(DEMO)][::5] if model == DEMO else []


def _held_out(model: str) -> list[Example]:
    path = precomputed.demo_dir() / "prompts.jsonl"
    if model != DEMO:
        path = Path(engine.__file__).parent / "data" / "general_prompts.jsonl"
    records = _records(path, "domain", "split", "risk", "base") if path.is_file() else []
    heldout = [record for record in records if record["split"] == "heldout"]
    return [Example(record["domain"], kind, record[kind]) for record in heldout for kind in ("risk", "base")]


@while_unchanged(4, lambda path, *names: (path,))
def _records(path: Path, *names: str) -> list[dict[str, str]]:
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return [{name: record[name] for name in names} for record in records]
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
