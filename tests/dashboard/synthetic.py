"""Results folders made up for tests: small, with known numbers."""

import io
import math
from pathlib import Path

import polars as pl

from engine.records.manifest import add_to_manifest, read_manifest
from engine.results.tables import TABLES, frame, spec
from engine.studies.verdict.judged_selectors import MORE

# pragma: allowlist nextline secret: made up
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
                    perplexity = math.exp(nll) if nll < 700 else math.inf
                    removed = round(rate * 1000)
                    rows.append((model, selector, seed, order, rate, removed, nll, 0.05, 4096, perplexity))
    names = ["model", "selector", "seed", "order", "rate", "rows_removed", "nll", "nll_stderr", "tokens", "perplexity"]
    return pl.DataFrame(rows, schema=names, orient="row")


def write_run(folder: Path, frame: pl.DataFrame | None = None, model: dict[str, str] = MODEL) -> Path:
    """A results folder with `sweep.parquet` and its manifest; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    typed("sweep", sweep(model=model["id"]) if frame is None else frame).write_parquet(buffer)
    (folder / "sweep.parquet").write_bytes(buffer.getvalue())
    add_to_manifest(folder, dict(model), "sweep.parquet", {"evaluation": {"corpus": "made-up text"}}, 1.0)
    return folder


def write_two_runs(folder: Path) -> None:
    """`first` and `second`, of different models."""
    write_run(folder / "first")
    write_run(folder / "second", sweep({"lrp": (2.0, 30.0)}, "other"), {"id": "other", "dtype": "float32"})


def typed(stem: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Whole numbers of the registry's width, and a type for columns without a value; nothing else is put right."""
    kinds = {name: spec(stem).column(name) for name in frame.columns} if stem in TABLES else {}
    loose = [
        (name, column.dtype)
        for name, column in kinds.items()
        if column and (frame[name].dtype == pl.Null or (frame[name].dtype.is_integer() and column.dtype.is_numeric()))
    ]
    return frame.with_columns(pl.col(name).cast(dtype) for name, dtype in loose)


def break_manifest(folder: Path) -> None:
    """Cut the manifest in half, as a full disk would."""
    path = folder / "manifest.json"
    path.write_text(path.read_text()[: len(path.read_text()) // 2])


def date_in_manifest(folder: Path) -> str:
    """The day of the measurement."""
    manifest = read_manifest(folder)
    return str(manifest["files"]["sweep.parquet"]["date"])[:10]


def stability(spearman: dict[str, float], model: str = MODEL["id"]) -> pl.DataFrame:
    """Sizes 8, 16 and 32 at 30%; the smallest size has the given Spearman, the largest is its own reference."""
    rows = []
    for selector, rho in spearman.items():
        for size, value in ((8, rho), (16, (rho + 1) / 2), (32, 1.0)):
            rows.append((model, selector, size, 32, 0.3, value, value / 2, 2.5, math.exp(2.5)))
    names = ["model", "selector", "size", "reference_size", "rate", "spearman", "jaccard", "nll", "perplexity"]
    return pl.DataFrame(rows, schema=names, orient="row")


def verdicts(model: str = MODEL["id"]) -> pl.DataFrame:
    """A faithful selector, and one that is stable but invalid."""
    rows = [
        (model, "lrp", "faithful", "stable", False, 5.7, 2.3, 3.8, 2.0, 0.2, 0.99, 0.9, "LeRF is below random.",
         "specific", 0.4, 5, 16, 0.97, 0.9),
        (model, "wanda", "not", "stable", True, 0.3, 3.8, 3.8, 2.0, 1.0, 0.999, 0.9, "No *why*.",
         "not", None, 5, 16, 0.99, 0.9),
    ]  # fmt: skip
    return frame("verdicts", rows, optional=MORE)


def add_table(folder: Path, stem: str, frame: pl.DataFrame) -> None:
    """Write one more table into a run, with its manifest entry."""
    typed(stem, frame).write_parquet(folder / f"{stem}.parquet")
    spec = {"evaluation": {"corpus": "made-up text"}}
    add_to_manifest(folder, read_manifest(folder)["model"], f"{stem}.parquet", spec, 1.0)
