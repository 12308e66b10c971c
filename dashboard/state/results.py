"""The one reader of results: tables and curves of a folder that was written with `--out`, that ships with the software,
or that holds the values of one model of the paper.

Everything is cached by the files' time stamps, sizes and inodes. What cannot be read is an `InputError` whose one
line says what to do."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import polars as pl

import precomputed
from dashboard.charts import formats, palette
from dashboard.state import access
from engine.data.window_starts import start_in_words
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.manifest import MANIFEST, read_manifest, shortfalls
from engine.records.model_names import model_name
from engine.results import folders
from engine.results.places import default_store_dir
from engine.results.tables import TABLES, with_domain_names
from engine.stats.blocks import has_blocks
from engine.studies.estimate_words import units_in_words

SWEEP, ROWS = "sweep", "rows"  # stems that several pages name
INTERVENTIONS = "sweep_interventions"
ZERO = "zero"  # the intervention of a sweep that names none
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
    "nll_stderr": pl.Float64,  # over blocks where the run has that; null where it is not published
    "blocks": pl.Int64,  # null where the error is over windows, or not published
    "tokens": pl.Int64,
    "printed": pl.String,  # the published text of the cell, null for measured ones
    "plateau": pl.Boolean,  # published cell at a numerical ceiling
    "saturated_above": pl.Float64,  # NLL, nats: the model is destroyed (`engine.stats.limits`); null: not known
}
_SEARCH_DEPTH = 3
Given = ParamSpec("Given")
Read = TypeVar("Read")
remake = folders.remake
shown = formats.shown


def stamp(path: Path) -> tuple[int, ...] | None:
    """Times, size and inode of a file, None where it is missing: what cached readings are good for."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def while_unchanged(
    maxsize: int, files: Callable[..., Iterable[Path]]
) -> Callable[[Callable[Given, Read]], Callable[Given, Read]]:
    """Decorator: what was read of these files, the last `maxsize` times, for as long as they have their stamps.
    It is shared between callers."""

    def decorated(read: Callable[Given, Read]) -> Callable[Given, Read]:
        @lru_cache(maxsize)
        def known(_stamps: object, *given: Any, **named: Any) -> Read:
            return read(*given, **named)

        @wraps(read)
        def current(*given: Any, **named: Any) -> Read:
            return known(tuple(map(stamp, files(*given, **named))), *given, **named)

        vars(current)["cache_clear"] = known.cache_clear
        return current

    return decorated


def _files_of(folder: Path, stem: str) -> tuple[Path, Path]:
    return folder / f"{stem}.parquet", folder / MANIFEST


@dataclass(frozen=True)
class Table:
    """A table as it was written, one line on where its numbers come from, and `before_windows`."""

    frame: pl.DataFrame
    provenance: str
    before_windows: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Curves:
    """Curves of one source: `frame` has `CURVE_SCHEMA`, `provenance` is one line for the foot of a page."""

    frame: pl.DataFrame
    provenance: str
    published: bool = False
    errors: str = "evaluation windows"  # what errors of a point take as independent
    before_windows: tuple[int, ...] | None = None

    @property
    def saturated_above(self) -> float | None:
        """NLL, nats, above which the model is destroyed; of curves of one model."""
        limits = self.frame["saturated_above"]
        return None if limits.is_empty() else limits[0]

    @property
    def models(self) -> list[str]:
        return self.frame["model"].unique(maintain_order=True).to_list()


def store_results_dir() -> Path:
    """The folder "My results" opens with: the one the app was started on, else where commands leave
    their tables when no `--out` is given. Not created by reading."""
    return Path(os.environ.get(STORE_VARIABLE) or default_store_dir() / "results")


def results_dir() -> Path:
    """Where new runs go and old ones are looked for: `results` of a store, or the folder the app was started on."""
    top = store_results_dir()
    return top / "results" if (top / "results").is_dir() or (top / "cells").is_dir() else top


def store_dir() -> Path | None:
    """The store that the app was started on; None = the default one."""
    top = store_results_dir()
    return top if (top / "cells").is_dir() else None


def folder_of(text: str) -> Path:
    """The folder that someone typed, with `~` for home. `InputError` for text that can name none, and where the app is
    limited (`access`) for one outside of the store and of what is shipped."""
    try:
        folder = Path(text).expanduser()
        access.need_inside(folder, (store_results_dir(), precomputed.demo_dir(), precomputed.paper_runs_dir()))
        folder.is_dir()
    except InputError:  # it is a ValueError
        raise
    except (RuntimeError, OSError, ValueError) as error:
        shown = text if len(text) <= 80 else f"{text[:80]}…"
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot look for a folder {shown} ({why}); give the path of a results folder") from None
    return folder


def find_runs(folder: Path) -> list[Path]:
    """Folders that hold tables, `folder` itself or up to three levels below, by name.
    An `InputError` where `folder` is missing or holds none."""
    tables = below(folder, "*.parquet", "selector-audit sweep MODEL")
    runs = {path.parent for path in tables if path.stem in TABLES and "model" in TABLES.get(path.stem).keys}
    runs = {run for run in runs if (run / MANIFEST).is_file() or not (run / JUDGED).is_file()}
    if not runs:
        raise InputError(f"{folder} holds no results; run `selector-audit sweep MODEL --out {folder}` first")
    return sorted(runs)


def below(folder: Path, pattern: str, command: str = "", *, odd: bool = False) -> list[Path]:
    """Files of this name or kind in a folder and up to three levels below it; links that lead back are not followed.
    odd: also those whose path is no Unicode, which no page can name (`shown` gives what can be shown).
    An `InputError` where there is no folder and a `command` is given that makes it."""
    if command and not folder.is_dir():
        remedy = f"run `{command} --out {folder}`"
        raise InputError(f"there is no folder {folder}; {remedy} or give the folder of an earlier run")
    paths = [path for depth in range(_SEARCH_DEPTH + 1) for path in folder.glob("*/" * depth + pattern)]
    return [path for path in paths if (odd or shown(path) == str(path)) and not _leads_back(path.parent, folder)]


def _leads_back(found: Path, folder: Path) -> bool:
    """Does a link on the way from `folder` lead to where the way has been already?"""
    names = found.relative_to(folder).parts
    way = [folder.joinpath(*names[:count]) for count in range(len(names) + 1)]
    try:
        return len({one.resolve() for one in way}) < len(way)
    except (OSError, RuntimeError):  # a link to itself
        return True


def paper_folders(stem: str) -> list[Path]:
    """The folders of the paper's models that hold a table, in the order of that table in the paper."""
    placed = []
    for folder in precomputed.paper_runs_dir().glob("*"):
        entry = _manifest(folder)["files"].get(f"{stem}.parquet")
        if entry is not None:
            placed.append((entry["place"], folder))
    return [folder for _, folder in sorted(placed)]


_manifest = while_unchanged(16, lambda folder: (folder / MANIFEST,))(read_manifest)


@while_unchanged(128, _files_of)
def read_table(folder: Path, stem: str) -> Table:
    """The table `stem` of a results folder, through the gate of the registry of tables.
    Errors: `InputError` for a missing, damaged or foreign file."""
    frame = folders.read_table(folder, stem)
    manifest = read_manifest(folder)
    entry = manifest["files"][f"{stem}.parquet"]
    learn_titles(entry)
    return Table(with_domain_names(frame), describe_run(manifest, entry), before_windows(manifest, entry))


def learn_titles(entry: dict[str, Any]) -> None:
    """What the manifest's entry of a file calls the plug-ins among its selectors."""
    spec = entry.get("spec") or {}
    for part in (spec, spec.get("scores")):
        if isinstance(part, dict):
            palette.learn_titles(part.get("selector_titles"))


def read_published(stem: str) -> Table:
    """The table of all models of the paper, one after the other. `InputError` where the paper has none."""
    tables = [read_table(folder, stem) for folder in paper_folders(stem)]
    if not tables:
        raise InputError(f"the paper printed no table for {stem}; choose measured results as the source")
    return Table(pl.concat([table.frame for table in tables]), tables[0].provenance)


@while_unchanged(64, lambda folder: _files_of(folder, SWEEP))
def read_run(folder: Path) -> Curves:
    return _curves(read_table(folder, SWEEP), published=False)


def read_interventions(folder: Path) -> dict[str, Curves]:
    """The curves of one results folder under every intervention that was measured, that of its sweep first."""
    whole = read_table(folder, SWEEP)
    own = whole.frame["intervention"][0] if "intervention" in whole.frame.columns and whole.frame.height else ZERO
    by_intervention = {str(own): _curves(whole, published=False)}
    if (folder / f"{INTERVENTIONS}.parquet").is_file():
        further = read_table(folder, INTERVENTIONS)
        for name in further.frame["intervention"].unique(maintain_order=True):
            under_one = further.frame.filter(pl.col("intervention") == name)
            by_intervention.setdefault(name, _curves(replace(further, frame=under_one), published=False))
    return by_intervention


@while_unchanged(4, lambda: (folder / f"{SWEEP}.parquet" for folder in paper_folders(SWEEP)))
def read_paper() -> Curves:
    """The published perplexities as curves: nll = ln(perplexity as printed); no row counts, no errors."""
    return _curves(read_published(SWEEP), published=True)


def _curves(table: Table, *, published: bool) -> Curves:
    frame = table.frame.with_columns(
        printed="perplexity_printed" if published else pl.lit(None, pl.String),
        plateau="at_ceiling" if "at_ceiling" in table.frame.columns else pl.lit(False),
        saturated_above="saturated_above" if "saturated_above" in table.frame.columns else pl.lit(None),
        blocks="blocks" if has_blocks(table.frame) else pl.lit(None),
    )
    errors = Curves.errors
    if has_blocks(table.frame):
        frame, errors = frame.with_columns(nll_stderr="stderr_blocks"), units_in_words(table.frame)
    ordered = frame.select(pl.col(name).cast(kind) for name, kind in CURVE_SCHEMA.items())
    ordered = ordered.sort("selector", "order", "rate", "seed", maintain_order=True)
    return Curves(ordered, table.provenance, published, errors, table.before_windows)


def describe_run(manifest: dict[str, Any], entry: dict[str, Any]) -> str:
    """One line: what was published; or model, revision, weights, dtype, what was measured, when, by which software."""
    if "published" in manifest:
        return str(entry.get("what", "Published values."))
    model = manifest.get("model") or {}
    environment = entry.get("environment") or {}
    spec = entry.get("spec") or {}
    corpus = spec.get("evaluation") or spec.get("corpus") or spec.get("eval_corpus")
    text = _text(spec)
    if isinstance(corpus, dict):
        corpus = corpus.get("corpus") or corpus.get("id")
    intervention = (spec.get("settings") or {}).get("intervention")
    scores = spec.get("scores")
    skipped = (scores if isinstance(scores, dict) else spec).get("skip_first")
    parts = [
        f"Model {model_name(model) if model.get('id') else 'unknown'}",
        f"revision {str(model['revision'])[:12]}" if model.get("revision") else None,
        f"weights {str(model['weights_hash'])[:12]}" if model.get("weights_hash") else None,
        f"{model['dtype']}" if model.get("dtype") else None,
        f"evaluated on {corpus}" if corpus else None,
        f"window start {start_in_words(text)}" if text else None,
        f"rows changed by {intervention}" if intervention not in (None, "zero") else None,
        f"thinking {spec['thinking_mode']}" if spec.get("thinking_mode") else None,
        f"scores without the first {skipped} positions of each window" if skipped else None,
        f"measured {str(entry['date'])[:10]}" if entry.get("date") else None,
        *software(environment),
        f"torch {environment['libraries']['torch']}" if (environment.get("libraries") or {}).get("torch") else None,
        *shortfalls(spec),
    ]
    return " · ".join(part for part in parts if part)


def software(environment: dict[str, Any]) -> list[str]:
    """`selector-audit 1.2`, `commit 0123456789+changes`; each where it is known."""
    version, commit = environment.get("selector-audit"), str(environment.get("git_commit") or "")
    changes = "+changes" if commit.endswith("+changes") else ""
    return [f"selector-audit {version}"] * bool(version) + [f"commit {commit[:10]}{changes}"] * bool(commit)


def before_windows(manifest: dict[str, Any], entry: dict[str, Any]) -> tuple[int, ...] | None:
    """The tokens before each window of the text behind a table, () for none; None where nobody knows."""
    text = _text(entry.get("spec") or {})
    return None if "published" in manifest or text is None else tuple(text.get("window_prefix", ()))


def _text(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The record of the text that was measured, else of that behind the scores."""
    scores = spec.get("scores")
    text_record = spec.get("evaluation") or (scores if isinstance(scores, dict) else spec).get("calibration")
    return text_record if isinstance(text_record, dict) else None


@while_unchanged(512, lambda path: (path,))
def height(path: Path) -> int | None:
    """Lines of a table, None for another file or one that cannot be read (the tables say so themselves)."""
    try:
        return bounds.check_parquet(path) if path.suffix == ".parquet" else None
    except (bounds.BadFile, OSError):
        return None
