"""The one reader of results: tables and curves of a folder that was written with `--out`, that ships with the software,
or that holds the values of one model of the paper.

Everything is cached by the files' time stamps and sizes. What cannot be read is an `InputError` whose one
line says what to do.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

import precomputed
from dashboard.charts import palette
from dashboard.state import provenance
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.results import folders
from engine.results.store import default_store_dir
from engine.results.tables import TABLES

SWEEP, ROWS = "sweep", "rows"  # stems that several pages name
POINTS, REFUSAL_SWEEP = "operating_points", "refusal_sweep"
JUDGED = "judge.json"  # in a folder of judged replies, whose verdicts.parquet is not the audit's
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
_SEARCH_DEPTH = 3
describe_run = provenance.describe_run
remake = folders.remake


@dataclass(frozen=True)
class Table:
    """A table as it was written, and one line on where its numbers come from."""

    frame: pl.DataFrame
    provenance: str


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


def folder_of(text: str) -> Path:
    """The folder that someone typed, with `~` for home. `InputError` for text that can name none."""
    try:
        folder = Path(text).expanduser()
        folder.is_dir()
    except (RuntimeError, OSError, ValueError) as error:
        shown = text if len(text) <= 80 else f"{text[:80]}…"
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot look for a folder {shown} ({why}); give the path of a results folder") from None
    return folder


def find_runs(folder: Path) -> list[Path]:
    """Folders that hold tables, `folder` itself or up to three levels below, by name.

    An `InputError` where `folder` is missing or holds none.
    """
    tables = below(folder, "*.parquet", "selector-audit sweep MODEL")
    found = {path.parent for path in tables if _is_result(path.stem)}
    found = {run for run in found if (run / "manifest.json").is_file() or not (run / JUDGED).is_file()}
    if not found:
        raise InputError(f"{folder} holds no results; run `selector-audit sweep MODEL --out {folder}` first")
    return sorted(found)


def below(folder: Path, pattern: str, command: str = "") -> list[Path]:
    """Files of this name or kind in a folder and up to three levels below it.

    An `InputError` where there is no folder and a `command` is given that makes it.
    """
    if command and not folder.is_dir():
        made = f"run `{command} --out {folder}`"
        raise InputError(f"there is no folder {folder}; {made} or give the folder of an earlier run")
    return [path for depth in range(_SEARCH_DEPTH + 1) for path in folder.glob("*/" * depth + pattern)]


def _is_result(stem: str) -> bool:
    """Is this a table about models? A folder with one of these is offered as a run."""
    return stem in TABLES and "model" in TABLES.get(stem).keys


def paper_folders(stem: str) -> list[Path]:
    """The folders of the paper's models that hold a table, in the order of that table in the paper."""
    found = []
    for folder in precomputed.paper_runs_dir().glob("*"):
        entry = _manifest(folder, stamp(folder / "manifest.json"))["files"].get(f"{stem}.parquet")
        if entry is not None:
            found.append((entry["place"], folder))
    return [folder for _, folder in sorted(found)]


@lru_cache(maxsize=16)
def _manifest(folder: Path, _manifest_stamp: object) -> dict[str, Any]:
    return read_manifest(folder)


def read_table(folder: Path, stem: str) -> Table:
    """The table `stem` of a results folder, through the gate of the registry of tables.

    Frames are shared between callers. Errors: `InputError` for a missing, damaged or foreign file.
    """
    path = folder / f"{stem}.parquet"
    return _read_table(folder, stem, stamp(path), stamp(folder / "manifest.json"))


@lru_cache(maxsize=128)
def _read_table(folder: Path, stem: str, _table_stamp: object, _manifest_stamp: object) -> Table:
    frame = folders.read_table(folder, stem)
    manifest = read_manifest(folder)
    entry = manifest["files"][f"{stem}.parquet"]
    learn_titles(entry)
    return Table(frame, describe_run(manifest, entry))


def learn_titles(entry: dict[str, Any]) -> None:
    """What the manifest's entry of a file calls the plug-ins among its selectors."""
    spec = entry.get("spec") or {}
    for part in (spec, spec.get("scores")):
        if isinstance(part, dict):
            palette.learn_titles(part.get("selector_titles"))


def read_published(stem: str) -> Table:
    """The table of all models of the paper, one after the other. `InputError` where the paper has none."""
    found = [read_table(folder, stem) for folder in paper_folders(stem)]
    if not found:
        raise InputError(f"the paper printed no table for {stem}; choose measured results as the source")
    return Table(pl.concat([table.frame for table in found]), found[0].provenance)


def read_run(folder: Path) -> Curves:
    """The curves of one results folder."""
    return _curves(read_table(folder, SWEEP), published=False)


def read_paper() -> Curves:
    """The published perplexities as curves: nll = ln(perplexity as printed); no row counts, no errors."""
    return _curves(read_published(SWEEP), published=True)


def _curves(table: Table, *, published: bool) -> Curves:
    frame = table.frame.with_columns(
        printed="perplexity_printed" if published else pl.lit(None, pl.String),
        plateau="at_ceiling" if "at_ceiling" in table.frame.columns else pl.lit(False),
    )
    ordered = frame.select(pl.col(name).cast(kind) for name, kind in CURVE_SCHEMA.items())
    ordered = ordered.sort("selector", "order", "rate", "seed", maintain_order=True)
    return Curves(ordered, table.provenance, published)


def stamp(path: Path) -> tuple[int, int] | None:
    """Time and size of a file, None where it is missing: what cached readings are good for."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=512)
def height(path: Path, _file_stamp: object) -> int | None:
    """Lines of a table, None for another file or one that cannot be read (the tables say so themselves)."""
    try:
        return int(pl.scan_parquet(path).select(pl.len()).collect().item()) if path.suffix == ".parquet" else None
    except (pl.exceptions.PolarsError, OSError):
        return None
