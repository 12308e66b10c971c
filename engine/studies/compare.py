"""A finished run beside the published values of the same model: a join of two results folders, then order and signs.
And beside what lm-evaluation-harness's own program measured."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from scipy.stats import norm

from engine.data.window_starts import start_in_words
from engine.records import bounds
from engine.records.errors import InputError, unknown
from engine.records.hashing import Json
from engine.records.manifest import read_manifest
from engine.records.shipped import paper_runs_dir
from engine.results.folders import read_table, table_names
from engine.stats.holm import LEVEL
from engine.stats.printed import against_printed, differing
from engine.studies.quantities import KEYS, QUANTITIES, measured_cells, published_cells


@dataclass(frozen=True)
class Comparison:
    """How a run compares with the published tables.

    orders: quantity, order, rate, selectors, pairs, agreeing, kendall - of the pairs of selectors that the
        printed digits tell apart, how many stand in the same order here; kendall = (agreeing - not) / pairs.
    signs: selector, rate, published_gap, measured_gap (PPL), published, measured - of every validity gap.
    cells: `KEYS`, model, published, half_unit, table, measured, difference, within (half a printed unit), and
        log_ratio, stderr, z, p_holm (`against_printed`), worst first. stderr and z are null where no standard error
        is stored and where the printed value is at the model's numerical ceiling.
    missing: published cells per quantity that the run did not measure.
    departures: what was measured otherwise than in the paper, in words, with the tables that it is true of."""

    model: str
    orders: pl.DataFrame
    signs: pl.DataFrame
    cells: pl.DataFrame
    missing: dict[str, int]
    departures: tuple[str, ...]


@cache
def paper_models() -> tuple[str, ...]:
    """The paper's models with a table that can be compared, sorted."""
    stems = {quantity.stem for quantity in QUANTITIES}
    found = [path.parent for path in paper_runs_dir().glob("*/manifest.json")]
    return tuple(sorted(folder.name for folder in found if stems & set(table_names(folder))))


def paper_model(model_id: str) -> str | None:
    """The paper's name of a model id or folder; None where it is none of the paper's base models."""
    name = _plain(model_id.rstrip("/").rpartition("/")[2])
    return next((known for known in paper_models() if name == _plain(known)), None)


def compare(folder: Path, model: str | None = None) -> Comparison:
    """Compare every published cell that the run in `folder` measured. model: the paper's name, if it is not clear.
    Errors: InputError for a run on none of the paper's models, and for a folder without a comparable table."""
    known = paper_models()
    if model is not None and model not in known:
        raise unknown("model of the paper", model, known)
    manifest = read_manifest(folder)
    run_model = str((manifest.get("model") or {}).get("id", "unknown"))
    name = model or paper_model(run_model)
    if name is None:
        raise InputError(
            f"{folder} holds results of {run_model}, which is none of the paper's models ({', '.join(known)}); "
            "name the one it stands for with --paper-model"
        )
    paper = paper_runs_dir() / name
    here, printed = set(table_names(folder)), set(table_names(paper))
    if not here & {quantity.stem for quantity in QUANTITIES}:
        raise InputError(
            f"{folder} holds none of the tables that the paper has; run `selector-audit analyze {run_model} all`"
        )
    published = [published_cells(one, read_table(paper, one.stem)) for one in QUANTITIES if one.stem in printed]
    measured = [
        measured_cells(one, read_table(folder, one.stem), _windows(manifest, one.stem))
        for one in QUANTITIES
        if one.stem in here
    ]
    joined = pl.concat(published).join(pl.concat(measured), on=list(KEYS), how="left", nulls_equal=True)
    joined = joined.with_columns(model=pl.lit(name))
    cells = joined.filter(pl.col("measured").is_not_null()).with_columns(
        difference=pl.col("measured") - pl.col("published")
    )
    # The printed number may stand for anything within half a unit; one part in 1e9 is for the arithmetic.
    slack = pl.col("half_unit") + 1e-9 * pl.col("published").abs()
    cells = cells.with_columns(within=pl.col("difference").abs() <= slack)
    cells = cells.with_columns(stderr=pl.when(~pl.col("at_ceiling")).then("stderr"))
    cells = against_printed(cells).drop("log_measured", "degrees", "at_ceiling")
    gone = joined.filter(pl.col("measured").is_null())["quantity"].value_counts()
    missing = dict(gone.sort("quantity").iter_rows())
    told = departures(manifest, read_manifest(paper))
    return Comparison(name, orders(cells), signs(cells), cells, missing, told)


_SETTINGS = {
    "calibration text": ("scores", "calibration", "corpus"),
    "calibration windows": ("scores", "calibration", "samples"),
    "tokens per calibration window": ("scores", "calibration", "length"),
    "objective": ("scores", "objective"),
    "first positions left out of scores": ("scores", "skip_first"),
    "evaluation text": ("evaluation", "corpus"),
    "evaluation windows": ("evaluation", "samples"),
    "tokens per evaluation window": ("evaluation", "length"),
}

_UNWRITTEN: Json = {"skip_first": 0}  # what a manifest leaves out where it is so


def departures(run: Json, paper: Json) -> tuple[str, ...]:
    """Where the settings behind compared tables are not the paper's, by both manifests. What one leaves out is not
    told."""
    found: dict[str, list[str]] = {}
    for stem in dict.fromkeys(quantity.stem for quantity in QUANTITIES):
        sides = [side.get("files", {}).get(f"{stem}.parquet", {}).get("spec", {}) for side in (run, paper)]
        for what, path in _SETTINGS.items():
            here, printed = (_setting(side, path) for side in sides)
            if here is not None and printed is not None and here != printed:
                found.setdefault(f"{what} {here}, the paper's is {printed}", []).append(stem)
        if _setting(sides[0], ("evaluation", "window_prefix")):
            start = start_in_words(sides[0]["evaluation"])
            found.setdefault(f"window start {start}, the paper does not tell its own", []).append(stem)
    return tuple(f"{text} ({', '.join(tables)})" for text, tables in found.items())


def _setting(settings: object, path: tuple[str, ...]) -> object:
    for key in path:
        settings = settings.get(key, _UNWRITTEN.get(key)) if isinstance(settings, dict) else None
    return settings


def _windows(manifest: Json, stem: str) -> int | None:
    """How many evaluation windows are behind a table, by the manifest."""
    spec = manifest.get("files", {}).get(f"{stem}.parquet", {}).get("spec", {})
    found = _setting(spec, ("evaluation", "samples"))
    return found if isinstance(found, int) else None


def orders(cells: pl.DataFrame) -> pl.DataFrame:
    """Does the run put the selectors in the published order? Per quantity, order and rate, over all pairs.
    Only pairs count that the printed digits tell apart (further apart than both half units)."""
    wanted = cells.filter(pl.col("quantity").is_in(["perplexity", "control_perplexity"]))
    keys = ["quantity", "order", "rate"]
    columns = [*keys, "selector", "published", "half_unit", "measured"]
    pairs = (
        wanted.select(columns)
        .join(wanted.select(columns), on=keys, suffix="_b")
        .filter(pl.col("selector") < pl.col("selector_b"))
        .filter((pl.col("published") - pl.col("published_b")).abs() > pl.col("half_unit") + pl.col("half_unit_b"))
    )
    same = (pl.col("published") < pl.col("published_b")) == (pl.col("measured") < pl.col("measured_b"))
    counted = pairs.group_by(keys, maintain_order=True).agg(pairs=pl.len(), agreeing=same.sum())
    selectors = wanted.group_by(keys).agg(selectors=pl.col("selector").n_unique())
    return (
        counted.join(selectors, on=keys)
        .with_columns(kendall=2 * pl.col("agreeing") / pl.col("pairs") - 1)
        .select(*keys, "selectors", "pairs", "agreeing", "kendall")
        .sort("quantity", "order", "rate")
    )


def signs(cells: pl.DataFrame) -> pl.DataFrame:
    """Sign of the validity gap PPL_MoRF - PPL_LeRF, published and measured, per selector and rate above 0."""
    curves = cells.filter(pl.col("quantity") == "perplexity", pl.col("rate") > 0)
    keys = ["selector", "rate"]
    sides = [curves.filter(order=order).select(*keys, "published", "measured") for order in ("morf", "lerf")]
    both = sides[0].join(sides[1], on=keys, suffix="_lerf")
    return both.select(
        *keys,
        published_gap=pl.col("published") - pl.col("published_lerf"),
        measured_gap=pl.col("measured") - pl.col("measured_lerf"),
    ).with_columns(same_sign=pl.col("published_gap").sign() == pl.col("measured_gap").sign())


def summary(comparison: Comparison) -> pl.DataFrame:
    """Per quantity: cells compared, within half a printed unit, with a standard error, of these beyond noise after
    Holm's correction over all quantities, median relative difference."""
    nonzero = pl.when(pl.col("published") != 0).then(pl.col("published"))  # no relative difference to 0
    relative = (pl.col("difference") / nonzero).abs()
    return (
        comparison.cells.group_by("quantity", maintain_order=True)
        .agg(
            cells=pl.len(),
            within=pl.col("within").sum(),
            tested=pl.col("z").count(),
            beyond_noise=(pl.col("p_holm") <= LEVEL).sum(),
            median_relative_difference=relative.median(),
        )
        .sort("quantity")
    )


def noise_sentences(cells: pl.DataFrame) -> tuple[str, ...]:
    """What z and Holm say of the cells of a comparison, in words: those with a standard error, then the others."""
    tested, others = cells.filter(pl.col("z").is_not_null()), cells.filter(pl.col("z").is_null())
    said = []
    if tested.height:
        said.append(
            f"{differing(tested).height} of {tested.height} cells with a standard error differ from the printed value "
            f"beyond rounding and noise (Holm over every cell with one, level {LEVEL:g}). The noise is the run's own, "
            "by its stored standard errors; the paper's is not printed."
        )
    if others.height:
        beyond = others.height - int(others["within"].sum())
        said.append(
            f"{others.height} cells have no stored standard error or a printed value at the model's numerical ceiling; "
            f"{beyond} of them differ by more than rounding, and nothing here says whether that is noise."
        )
    return tuple(said)


def furthest(cells: pl.DataFrame, per_quantity: int) -> pl.DataFrame:
    """Of the cells without a z those furthest from the printed value, at most so many of each quantity."""
    untold = cells.filter(pl.col("z").is_null(), ~pl.col("within").fill_null(value=False))
    return untold.group_by("quantity", maintain_order=True).head(per_quantity)


def _plain(name: str) -> str:
    """`Meta-Llama-3.1-8B` and `llama-3.1-8b` are one model; `-pt` and `-Base` name the base model."""
    return re.sub(r"-(pt|base|hf)$", "", name.lower().removeprefix("meta-"))


_Z = float(norm.ppf(0.975))
_METRIC, _STDERR = "acc,none", "acc_stderr,none"


def beside(folder: Path, file: Path) -> tuple[pl.DataFrame, list[str]]:
    """A line per task of both, and the tasks of the file that the run did not ask.

    Columns: task, items and their_items, ours (accuracy of the unedited model) and theirs, difference = ours - theirs,
    low and high: +- 1.96 sqrt(stderr^2 + their_stderr^2), the errors taken as independent, which is too wide for the
    same items; null without an error. asked_otherwise: version or shots that are not ours, "" for none.
    Errors: InputError for another file, and where no task is in both."""
    ours = read_table(folder, "downstream").filter(rate=0).unique("task", keep="first", maintain_order=True)
    versions = dict(read_table(folder, "downstream_tasks").select("task", "version").iter_rows())
    try:
        found = bounds.json_of(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({error}); give a results_….json of `lm_eval --output_path`") from None
    results, lines = _object(found, "results"), []
    theirs = {task: one for task, one in results.items() if _number(_object(results, task).get(_METRIC)) is not None}
    for task, items, accuracy, stderr in ours.select("task", "items", "accuracy", "stderr").iter_rows():
        if task not in theirs:
            continue
        there, their_stderr = float(theirs[task][_METRIC]), _number(theirs[task].get(_STDERR))
        width = None if stderr is None or their_stderr is None else _Z * (stderr**2 + their_stderr**2) ** 0.5
        difference = accuracy - there
        ends = (None, None) if width is None else (difference - width, difference + width)
        shots, version = _object(found, "n-shot").get(task, 0), _object(found, "versions").get(task)
        otherwise = [f"{shots} shots"] if shots else []
        if version is not None and _number(version) != _number(versions[task]):
            otherwise.append(f"version {version}, here {versions[task]}")
        asked = _object(_object(found, "n-samples"), task).get("effective")
        lines.append((task, items, asked, accuracy, there, difference, *ends, "; ".join(otherwise)))
    if not lines:
        raise InputError(
            f"{file} has an accuracy ({_METRIC}) of {', '.join(sorted(theirs)) or 'no task'}, the run of "
            f"{', '.join(ours['task'])}; give the results of these tasks"
        )
    numbers = dict.fromkeys(("ours", "theirs", "difference", "low", "high"), pl.Float64)
    schema = {"task": pl.String, "items": pl.Int64, "their_items": pl.Int64, **numbers, "asked_otherwise": pl.String}
    return pl.DataFrame(lines, schema, orient="row"), sorted(theirs.keys() - set(ours["task"]))


def _object(value: Any, name: str) -> dict[str, Any]:
    inner = value.get(name) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def _number(value: Any) -> float | None:
    """None for what is none: lm-eval writes N/A for an error that was not asked for."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
