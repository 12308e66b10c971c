"""Curves of a results folder (one written with `--out`, or the shipped model's) and of the published tables.

Everything is returned as one tidy frame per question, whatever its source, and cached by the files' time
stamps and sizes. What cannot be read is an `InputError` whose one line says what to do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from engine.errors import InputError
from engine.records import file_sha256, read_manifest
from engine.store import default_store_dir

SWEEP = "sweep.parquet"
STORE_VARIABLE = "SELECTOR_AUDIT_DASHBOARD"  # set by serve.py from --store
ORDERS = ("lerf", "morf")
CURVE_SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "seed": pl.Int64,
    "order": pl.String,  # lerf | morf
    "rate": pl.Float64,
    "rows_removed": pl.Int64,  # null where it is not published
    "nll": pl.Float64,  # nats per predicted token
    "nll_stderr": pl.Float64,  # null where it is not published
    "tokens": pl.Int64,
    "printed": pl.String,  # the published text of the cell, null for measured ones
    "plateau": pl.Boolean,  # published cell at a numerical ceiling
}
_SWEEP_COLUMNS = ("model", "selector", "seed", "order", "rate", "rows_removed", "nll", "nll_stderr", "tokens")
_SELECTOR_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # shown as markdown in labels
_SEARCH_DEPTH = 3


@dataclass(frozen=True)
class Curves:
    """Curves of one source: `frame` has `CURVE_SCHEMA`, `provenance` is one line for the foot of a page."""

    frame: pl.DataFrame
    provenance: str
    published: bool = False

    @property
    def models(self) -> list[str]:
        return self.frame["model"].unique(maintain_order=True).to_list()


def store_results_dir() -> Path:
    """The folder "My results" opens with: the one the app was started on, else where commands leave
    their tables when no `--out` is given. Not created by reading."""
    given = os.environ.get(STORE_VARIABLE)
    return Path(given) if given else default_store_dir() / "results"


def find_runs(folder: Path) -> list[Path]:
    """Folders with a `sweep.parquet`, `folder` itself or up to three levels below, by name.

    An `InputError` where `folder` is missing or holds none.
    """
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}; run `selector-audit sweep MODEL --out {folder}` "
            "or give the folder of an earlier run"
        )
    found = []
    for depth in range(_SEARCH_DEPTH + 1):
        found += [path.parent for path in folder.glob("/".join(["*"] * depth + [SWEEP]))]
    if not found:
        raise InputError(f"{folder} holds no {SWEEP}; run `selector-audit sweep MODEL --out {folder}` first")
    return sorted(found)


def read_run(folder: Path) -> Curves:
    """The curves of one results folder. Its manifest's checksum must fit the file."""
    path = folder / SWEEP
    if not path.is_file():
        raise InputError(f"{folder} holds no {SWEEP}; run `selector-audit sweep MODEL --out {folder}` first")
    return _read_run(folder, stamp(path), stamp(folder / "manifest.json"))


@lru_cache(maxsize=16)
def _read_run(folder: Path, _sweep_stamp: object, _manifest_stamp: object) -> Curves:
    path = folder / SWEEP
    manifest = read_manifest(folder)
    entry = manifest.get("files", {}).get(SWEEP, {})
    if entry.get("sha256") != file_sha256(path):
        raise InputError(
            f"{path} does not fit the checksum in its manifest.json (damaged, or changed by hand); "
            "delete the folder and run `selector-audit sweep` again, finished cells are kept in the store"
        )
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        first_line = str(error).splitlines()[0]
        raise InputError(
            f"{path} is not readable parquet ({first_line}); run `selector-audit sweep` again"
        ) from None
    missing = [name for name in _SWEEP_COLUMNS if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path} lacks the columns {', '.join(missing)}; it was not written by `selector-audit sweep`"
        )
    odd = [name for name in frame["selector"].unique().to_list() if not _SELECTOR_ID.fullmatch(str(name))]
    if odd:
        raise InputError(f"{path} names a selector {odd[0]!r}; ids are letters, digits and . _ - only")
    frame = frame.with_columns(printed=pl.lit(None, pl.String), plateau=pl.lit(False))
    return Curves(_curve_frame(frame), describe_run(manifest, entry))


def read_paper() -> Curves:
    """The published perplexities as curves: nll = ln(perplexity as printed); no row counts, no errors."""
    from precomputed.paper_tables import load_table

    table = load_table("lerf_morf_ppl")
    frame = table.with_columns(
        order=pl.col("order").str.to_lowercase(),
        nll=pl.col("ppl").log(),
        plateau=pl.col("at_ceiling"),
        seed=pl.lit(None, pl.Int64),
        rows_removed=pl.lit(None, pl.Int64),
        nll_stderr=pl.lit(None, pl.Float64),
        tokens=pl.lit(None, pl.Int64),
    )
    text = (
        "Published values: tables of the paper's perplexities under LeRF and MoRF, as printed (three digits)."
    )
    return Curves(_curve_frame(frame), text, published=True)


def _curve_frame(frame: pl.DataFrame) -> pl.DataFrame:
    ordered = frame.select(pl.col(name).cast(kind) for name, kind in CURVE_SCHEMA.items())
    return ordered.sort("selector", "order", "rate", "seed", maintain_order=True)


def describe_run(manifest: dict[str, Any], entry: dict[str, Any]) -> str:
    """One line: model, revision, weights, dtype, what was measured, when, with which software."""
    model = manifest.get("model") or {}
    environment = entry.get("environment") or {}
    spec = entry.get("spec") or {}
    corpus = spec.get("evaluation") or spec.get("corpus") or spec.get("eval_corpus")
    if isinstance(corpus, dict):
        corpus = corpus.get("corpus") or corpus.get("id")
    commit = environment.get("git_commit")
    parts = [
        f"Model {model.get('id', 'unknown')}",
        f"revision {str(model['revision'])[:12]}" if model.get("revision") else None,
        f"weights {str(model['weights_hash'])[:12]}" if model.get("weights_hash") else None,
        f"{model['dtype']}" if model.get("dtype") else None,
        f"evaluated on {corpus}" if corpus else None,
        f"measured {str(entry['date'])[:10]}" if entry.get("date") else None,
        f"selector-audit {environment['selector-audit']}" if environment.get("selector-audit") else None,
        f"commit {str(commit)[:10]}{'+changes' if str(commit).endswith('+changes') else ''}"
        if commit
        else None,
        f"torch {environment['libraries']['torch']}"
        if (environment.get("libraries") or {}).get("torch")
        else None,
    ]
    return " · ".join(part for part in parts if part)


def stamp(path: Path) -> tuple[int, int] | None:
    """Time and size of a file, None where it is missing: what cached readings are good for."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
