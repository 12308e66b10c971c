"""Results folders made up for tests: small, with known numbers."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import polars as pl

from engine.records import add_to_manifest

MODEL = {"id": "made-up-1B", "revision": "4e20de1c3a55", "weights_hash": "ab" * 32, "dtype": "float32"}
RATES = (0.0, 0.1, 0.3, 0.5)
UNMASKED_NLL = 2.0
# nats added per unit of rate: LeRF, MoRF
SLOPES = {"lrp": (1.0, 20.0), "ig": (1.5, 12.0), "wanda": (6.0, 7.0), "random": (6.0, 6.0)}


def sweep(slopes: dict[str, tuple[float, float]] = SLOPES, model: str = MODEL["id"]) -> pl.DataFrame:
    """A sweep of straight lines; the three seeds of random lie at -0.1, 0 and +0.1 nats around theirs."""
    rows = []
    for selector, (lerf, morf) in slopes.items():
        for order, slope in (("lerf", lerf), ("morf", morf)):
            for rate in RATES:
                seeds = ((42, -0.1), (43, 0.0), (44, 0.1)) if selector == "random" else ((None, 0.0),)
                for seed, shift in seeds:
                    nll = UNMASKED_NLL + slope * rate + (shift if rate else 0.0)
                    perplexity = math.exp(nll) if nll < 700 else None
                    removed = round(rate * 1000)
                    rows.append((model, selector, seed, order, rate, removed, nll, 0.05, 4096, perplexity))
    names = [
        "model",
        "selector",
        "seed",
        "order",
        "rate",
        "rows_removed",
        "nll",
        "nll_stderr",
        "tokens",
        "perplexity",
    ]
    return pl.DataFrame(rows, schema=names, orient="row")


def write_run(folder: Path, frame: pl.DataFrame | None = None, model: dict[str, str] = MODEL) -> Path:
    """A results folder with `sweep.parquet` and its manifest; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    (sweep(model=model["id"]) if frame is None else frame).write_parquet(buffer)
    (folder / "sweep.parquet").write_bytes(buffer.getvalue())
    add_to_manifest(folder, dict(model), "sweep.parquet", {"evaluation": {"corpus": "made-up text"}}, 1.0)
    return folder


def break_manifest(folder: Path) -> None:
    """Cut the manifest in half, as a full disk would."""
    path = folder / "manifest.json"
    path.write_text(path.read_text()[: len(path.read_text()) // 2])


def date_in_manifest(folder: Path) -> str:
    """The day of the measurement."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return str(manifest["files"]["sweep.parquet"]["date"])[:10]
