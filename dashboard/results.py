"""Tables of a results folder (one written with `--out`, or the shipped model's), and curves of measured and
published sweeps.

Everything is cached by the files' time stamps and sizes. What cannot be read is an `InputError` whose one
line says what to do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import polars as pl

from dashboard import provenance, schemas
from engine import tables
from engine.errors import InputError
from engine.records import read_manifest
from engine.store import default_store_dir

SWEEP = f"{schemas.SWEEP}.parquet"
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
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # shown as markdown in labels
_ID_COLUMNS = (
    "selector", "selector_a", "selector_b", "control", "task", "sublayer", "projection", "name",
    "domain", "domain_a", "domain_b", "evaluated_domain",
)  # fmt: skip
_SEARCH_DEPTH = 3
describe_run = provenance.describe_run


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
        raise InputError(
            f"cannot look for a folder {shown} ({why}); give the path of a results folder"
        ) from None
    return folder


def find_runs(folder: Path) -> list[Path]:
    """Folders that hold tables, `folder` itself or up to three levels below, by name.

    An `InputError` where `folder` is missing or holds none.
    """
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}; run `selector-audit sweep MODEL --out {folder}` "
            "or give the folder of an earlier run"
        )
    found: set[Path] = set()
    for depth in range(_SEARCH_DEPTH + 1):
        pattern = "/".join(["*"] * depth + ["*.parquet"])
        found |= {path.parent for path in folder.glob(pattern) if path.stem in schemas.RESULTS}
    found = {
        run for run in found if (run / "manifest.json").is_file() or not (run / schemas.JUDGED).is_file()
    }
    if not found:
        raise InputError(f"{folder} holds no results; run `selector-audit sweep MODEL --out {folder}` first")
    return sorted(found)


def read_table(folder: Path, stem: str) -> Table:
    """The table `stem` of a results folder: its manifest's checksum fits, the needed columns are there.

    Frames are shared between callers. Errors: `InputError` for a missing, damaged or foreign file.
    """
    path = folder / f"{stem}.parquet"
    return _read_table(folder, stem, stamp(path), stamp(folder / "manifest.json"))


@lru_cache(maxsize=64)
def _read_table(folder: Path, stem: str, _table_stamp: object, _manifest_stamp: object) -> Table:
    path, again = folder / f"{stem}.parquet", remake(folder, stem)
    frame = tables.read_table(folder, stem, again)
    missing = [name for name in schemas.COLUMNS[stem] if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path} lacks the columns {', '.join(missing)}; another version wrote it, or another program; "
            f"run `{again}` again"
        )
    for column in set(_ID_COLUMNS) & set(frame.columns):
        odd = [name for name in frame[column].unique().to_list() if not is_id(str(name))]
        if odd:
            raise InputError(f"{path} names a {column} {odd[0]!r}; ids are letters, digits and . _ - only")
    manifest = read_manifest(folder)
    return Table(frame, describe_run(manifest, manifest["files"][path.name]))


def remake(folder: Path, stem: str) -> str:
    """The command that writes the table here, with the model's name where the manifest tells it."""
    try:
        model = read_manifest(folder).get("model", {}).get("id")
    except InputError:
        model = None
    return f"{schemas.command(stem, str(model or 'MODEL'))} --out {folder}"


def is_id(name: str) -> bool:
    """Is this a name that can be shown anywhere: letters, digits and . _ - only?"""
    return _ID.fullmatch(name) is not None


def read_run(folder: Path) -> Curves:
    """The curves of one results folder."""
    table = read_table(folder, schemas.SWEEP)
    frame = table.frame.with_columns(printed=pl.lit(None, pl.String), plateau=pl.lit(False))
    return Curves(_curve_frame(frame), table.provenance)


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


def stamp(path: Path) -> tuple[int, int] | None:
    """Time and size of a file, None where it is missing: what cached readings are good for."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
