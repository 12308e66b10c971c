"""A results folder as large as that of a model of 12 billion parameters: 48 blocks, 2.2 million rows, scores at random.

What tells rows from each other (masks, overlaps, depths) is made of the scores by the engine; what would need the
model itself is made up, of as many blocks, rates and selectors as a real audit has.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import made_up_audit
import numpy as np
import polars as pl
import synthetic_refusal
from made_up_audit import NAME, SEEDS
from synthetic import MODEL, add_table, write_run

from engine.edits.edit import Ranking
from engine.models.row_index import Layer, RowIndex
from engine.records.manifest import add_to_manifest

BLOCKS = 48
LAYERS = (
    ("attention", "q_proj", 4096), ("attention", "k_proj", 2048), ("attention", "v_proj", 2048),
    ("attention", "o_proj", 3840), ("mlp", "gate_proj", 15360), ("mlp", "up_proj", 15360), ("mlp", "down_proj", 3840),
)  # fmt: skip
SELECTORS = ("lrp", "ig", "consensus2", "wanda", "mean_activation", "magnitude", "random")
RATES = (0.0, 0.01, 0.02, 0.05, *(step / 20 for step in range(2, 19)))
SAMPLED = 2048  # rows and neurons that were removed one by one


def row_index() -> RowIndex:
    """2,236,416 rows."""
    layers, start = [], 0
    for block in range(BLOCKS):
        for sublayer, projection, rows in LAYERS:
            name = f"model.layers.{block}.{projection}"
            layers.append(Layer(len(layers), name, block, sublayer, projection, start, rows))  # type: ignore[arg-type]
            start += rows
    return RowIndex(tuple(layers))


def scores(rows: int) -> dict[str, np.ndarray]:
    """Of every selector, with something in common; of random three seeds."""
    noise = np.random.default_rng(7)
    shared = noise.standard_normal(rows, dtype=np.float32)
    found = {
        name: np.abs(shared + (0.2 + place / 3) * noise.standard_normal(rows, dtype=np.float32))
        for place, name in enumerate(SELECTORS[:-1])
    }
    return found | {"random": noise.random((len(SEEDS), rows), dtype=np.float32)}


def of_the_scores(index: RowIndex, found: Mapping[str, np.ndarray]) -> dict[str, pl.DataFrame]:
    """The tables that the analyses make of scores alone."""
    from engine.studies.audit.agreement import Agreement, Depth
    from engine.studies.audit.groups import RankDistribution

    audit = SimpleNamespace(
        loaded=SimpleNamespace(id=NAME, rows=index), scores=found, progress=None, require=lambda *_: None,
        rankings=[
            Ranking(name, seed, values) for name in SELECTORS
            for seed, values in (zip(SEEDS, found[name], strict=True) if name == "random" else [(None, found[name])])
        ],
        plan=SimpleNamespace(agreement_rates=(0.1, 0.2, 0.3, 0.5), rank_distribution_rates=(0.1, 0.2, 0.3, 0.5)),
    )  # fmt: skip
    made: dict[str, pl.DataFrame] = {}
    for study in (Agreement(), Depth(), RankDistribution()):
        made |= study.tables(audit, {})  # type: ignore[arg-type]
    return made


def sweep(rows: int) -> pl.DataFrame:
    """Straight lines, as long as a fine sweep."""
    lines = []
    for place, name in enumerate(SELECTORS):
        for order, slope in (("lerf", 2.0 + place), ("morf", 20.0 - 2 * place)):
            for rate in RATES:
                for seed in SEEDS if name == "random" else (None,):
                    nll = 2.0 + slope * rate + (0.05 * (seed - 43) if seed and rate else 0.0)
                    lines.append((NAME, name, seed, order, rate, round(rate * rows), nll, 0.02, 262_144, math.exp(nll)))
    names = "model selector seed order rate rows_removed nll nll_stderr tokens perplexity"
    return pl.DataFrame(lines, schema=names.split(), orient="row", infer_schema_length=None)


def groups(index: RowIndex) -> dict[str, pl.DataFrame]:
    """A group per selector, block and sublayer."""
    rows = {(layer.block, layer.sublayer): 0 for layer in index.layers}
    for layer in index.layers:
        rows[layer.block, layer.sublayer] += round(0.3 * layer.rows)
    single = [
        (NAME, name, 0.3, block, sublayer, count, 2.0 + (1.5 if block in (0, 47) and place > 2 else 0.1),
         block in (0, 47) and place > 2)
        for place, name in enumerate(SELECTORS) for (block, sublayer), count in rows.items()
    ]  # fmt: skip
    dangerous = made_up_audit.table(single, "model selector rate block sublayer rows nll dangerous")
    return {"dangerous": dangerous}


def singles(index: RowIndex) -> dict[str, pl.DataFrame]:
    """A sample of rows removed one by one."""
    taken = np.sort(np.random.default_rng(1).choice(index.n_rows, SAMPLED, replace=False))
    with patch.object(made_up_audit, "row_index", lambda: index.frame()[taken]):
        return made_up_audit.singles()


def refusal() -> dict[str, pl.DataFrame]:
    """A grid of 5 lambdas and 8 shares for 6 domains."""
    grid = {
        "LAMBDAS": (0.1, 0.2, 0.3, 0.5, 0.9), "KS": (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1),
        "DOMAINS": ("hate", "crime", "legal", "medical", "sexual", "violence"),
    }  # fmt: skip
    with patch.multiple(synthetic_refusal, **grid):
        return {
            "refusal_sweep": synthetic_refusal.sweep(), "operating_points": synthetic_refusal.points(),
            "refusal_controls": synthetic_refusal.controls(), "transfer": synthetic_refusal.transfer(),
            "utility": synthetic_refusal.utility(), "composed": synthetic_refusal.composed(),
            "baselines": synthetic_refusal.baselines(), **synthetic_refusal.structure(),
        }  # fmt: skip


def write_large_audit(folder: Path) -> Path:
    """The folder with scores and every table; returns it."""
    from safetensors.numpy import save_file

    index = row_index()
    write_run(folder, sweep(index.n_rows))
    found = scores(index.n_rows)
    tables = {
        "rows": index.frame(), **made_up_audit.controls(), **made_up_audit.groups(), **made_up_audit.repeated(),
        **made_up_audit.exact_controls(), **made_up_audit.protocols(), **singles(index), **groups(index), **refusal(),
        **of_the_scores(index, found),
    }  # fmt: skip
    for stem, table in tables.items():
        add_table(folder, stem, table)
    save_file(found, folder / "scores.safetensors")
    add_to_manifest(folder, dict(MODEL), "scores.safetensors", {"scores": "drawn at random"}, 1.0)
    return folder
