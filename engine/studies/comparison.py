"""A finished run beside the published values of the same model: a join of two results folders, then order and signs.
And beside what lm-evaluation-harness's own program measured."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from engine.results.tables import HALF_UNIT, spec
from engine.stats.printed import against_printed, differing, noise_of
from engine.stats.uncertainty import LEVEL

# What names a cell; the registry's keys of these names are the cell's.
KEYS = {
    "quantity": pl.String,
    "selector": pl.String,  # or the control
    "other": pl.String,  # second selector of a pair, category, corpus, task
    "order": pl.String,
    "sublayer": pl.String,
    "rate": pl.Float64,
    "size": pl.Int64,  # calibration windows
}


@dataclass(frozen=True)
class Quantity:
    """A published number and where both folders have it.

    stem, value: the table and its column, which stands beside half a unit of the printed digits in the published one.
    table: the paper's. measured: from the columns of a measured table, if it is not `value`. log: its natural
    logarithm, where ratios compare. error: the column with the standard error of that logarithm, else of the number;
    blocks: the column with that error over blocks of windows, which is taken where the table has it, with the column
    `blocks` as its units; units: the column with the number of independent units behind it, if these are not the
    evaluation windows.
    keys: key columns that the table calls otherwise or does not have."""

    name: str
    stem: str
    value: str
    table: str
    measured: pl.Expr | None = None
    log: pl.Expr | None = None
    error: str | None = None
    blocks: str | None = None
    units: str | None = None
    keys: Mapping[str, pl.Expr] = field(default_factory=dict)


_NLL = pl.col("nll")
_EXP = _NLL.exp()
_NO_RATE = {"rate": pl.lit(None)}  # on every line of its selector the same
_PAIR = {
    "selector": pl.min_horizontal("selector_a", "selector_b"),
    "other": pl.max_horizontal("selector_a", "selector_b"),
}
# LeRF throughout; at rate 0 every selector is the unmasked model, which the paper prints once.
_TASK = {
    "selector": pl.when(pl.col("rate") == 0).then(pl.lit("dense")).otherwise("selector"),
    "other": pl.col("task"),
    "order": pl.lit(None),
}
_PARTS, _DOMAIN = "consensus_rank_distribution", "domain_sensitivity"
QUANTITIES = (
    Quantity("perplexity", "sweep", "perplexity", "lerf_morf_ppl", _EXP, _NLL, "nll_stderr",
             "stderr_blocks"),
    Quantity("stability_perplexity", "stability", "perplexity", "convergence_ppl", _EXP, _NLL),
    Quantity("stability_jaccard", "stability", "jaccard", "jaccard_stability"),
    Quantity("stability_spearman", "stability", "spearman", "spearman_stability", keys=_NO_RATE),
    Quantity("jaccard", "jaccard", "jaccard", "jaccard_pairs", keys=_PAIR),
    Quantity("spearman", "spearman", "spearman", "spearman_pairs", keys=_PAIR),
    Quantity("control_perplexity", "controls", "perplexity", "consensus_controls", _EXP, _NLL,
             keys={"selector": pl.col("control")}),
    *(
        Quantity("rank_distribution", "rank_distribution", part, _PARTS,
                 keys={"selector": pl.lit("consensus2"), "other": pl.lit(part)})
        for part in ("both", "only_one", "neither")
    ),
    Quantity("dangerous_groups", "dangerous_summary", "dangerous_groups", "false_negatives"),
    Quantity("dangerous_share", "dangerous_summary", "share", "false_negatives"),
    Quantity("domain_spearman", "domain", "spearman", _DOMAIN, keys=_NO_RATE),
    Quantity("domain_jaccard", "domain", "jaccard", _DOMAIN),
    *(
        Quantity("domain_lerf_ppl", "domain", f"ppl_{side}", _DOMAIN, pl.col(f"nll_{side}").exp(),
                 pl.col(f"nll_{side}"), f"stderr_{side}", f"stderr_blocks_{side}",
                 keys={"other": pl.col(f"corpus_{side}")})
        for side in ("a", "b")
    ),
    Quantity("accuracy", "downstream", "accuracy", "downstream_accuracy", error="stderr", units="items",
             keys=_TASK),
)  # fmt: skip


def published_cells(quantity: Quantity, table: pl.DataFrame) -> pl.DataFrame:
    """KEYS, published, half_unit, at_ceiling, table: a line per printed cell."""
    ceiling = pl.col("at_ceiling") if "at_ceiling" in table.columns else pl.lit(None, pl.Boolean)
    cells = _keyed(
        quantity, table, published=pl.col(quantity.value).cast(pl.Float64),
        half_unit=f"{quantity.value}{HALF_UNIT}", at_ceiling=ceiling.fill_null(value=False),
    )  # fmt: skip
    printed = cells.drop_nulls("published").unique(list(KEYS), keep="first", maintain_order=True)
    return printed.with_columns(table=pl.lit(quantity.table))


def measured_cells(quantity: Quantity, table: pl.DataFrame, windows: int | None) -> pl.DataFrame:
    """KEYS, measured, log_measured, stderr, degrees: averaged over seeds as the paper does (arithmetic mean)."""
    value = pl.col(quantity.value) if quantity.measured is None else quantity.measured
    nothing = pl.lit(None, pl.Float64)
    error, units = quantity.error, pl.lit(windows, pl.Int64) if quantity.units is None else pl.col(quantity.units)
    if quantity.blocks is not None and {quantity.blocks, "blocks"} <= set(table.columns):
        error, units = quantity.blocks, pl.col("blocks")
    cells = _keyed(
        quantity, table,
        measured=value.cast(pl.Float64),
        log=nothing if quantity.log is None else quantity.log,
        error=nothing if error is None or error not in table.columns else pl.col(error),
        units=units,
    )  # fmt: skip
    by_cell = cells.group_by(list(KEYS), maintain_order=True).agg("measured", "log", "error", pl.col("units").first())
    numbers = [_mean(*row) for row in by_cell.select("measured", "log", "error", "units").iter_rows()]
    names = ("measured", "log_measured", "stderr", "degrees")
    return by_cell.select(*KEYS).hstack(pl.DataFrame(numbers, schema=dict.fromkeys(names, pl.Float64), orient="row"))


def _mean(
    values: list[float | None], logs: list[float | None], errors: list[float | None], units: int | None
) -> tuple[float | None, ...]:
    """Mean over seeds, its logarithm, and its noise: of the logarithm where there is one, else of the mean."""
    values_known = [value for value in values if value is not None]
    mean = sum(values_known) / len(values_known) if values_known else None
    if mean is None or len(values_known) < len(values):
        return mean, None, None, None
    known = [log for log in logs if log is not None]
    if len(known) < len(values):
        noise = noise_of(values_known, errors, units)
        return mean, None, *(noise or (None, None))
    highest = max(known)
    log_mean = highest  # so that exp of a large NLL does not overflow
    if math.isfinite(highest):
        log_mean += math.log(math.fsum(math.exp(log - highest) for log in known) / len(known))
    if not math.isfinite(log_mean):
        return mean, log_mean, None, None
    relative = [math.exp(log - log_mean) for log in known]
    scaled = [None if e is None else e * share for e, share in zip(errors, relative, strict=True)]
    noise = noise_of(relative, scaled, units)
    return mean, log_mean, *(noise or (None, None))


def _keyed(quantity: Quantity, table: pl.DataFrame, **values: pl.Expr | str) -> pl.DataFrame:
    """KEYS and the values, without what the paper has no counterpart of: copies of another size, other edits."""
    if "size_matched_to" in table.columns:
        table = table.filter(pl.col("size_matched_to").is_null())
    if "intervention" in table.columns:
        table = table.filter(pl.col("intervention") == "zero")
    if "selector_a" in table.columns:
        table = table.filter(pl.col("selector_a") != pl.col("selector_b"))
    own = {name: pl.col(name) for name in spec(quantity.stem).keys if name in KEYS}
    exprs: dict[str, pl.Expr] = own | {"quantity": pl.lit(quantity.name)} | dict(quantity.keys)
    keys = {name: exprs.get(name, pl.lit(None)).cast(kind) for name, kind in KEYS.items()}
    return table.select(**keys, **values).with_columns(pl.col("rate").round(6))


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
    folders = [path.parent for path in paper_runs_dir().glob("*/manifest.json")]
    return tuple(sorted(folder.name for folder in folders if stems & set(table_names(folder))))


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
    differences = departures(manifest, read_manifest(paper))
    return Comparison(name, orders(cells), signs(cells), cells, missing, differences)


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
    by_reason: dict[str, list[str]] = {}
    for stem in dict.fromkeys(quantity.stem for quantity in QUANTITIES):
        sides = [side.get("files", {}).get(f"{stem}.parquet", {}).get("spec", {}) for side in (run, paper)]
        for what, path in _SETTINGS.items():
            here, printed = (_setting(side, path) for side in sides)
            if here is not None and printed is not None and here != printed:
                by_reason.setdefault(f"{what} {here}, the paper's is {printed}", []).append(stem)
        if _setting(sides[0], ("evaluation", "window_prefix")):
            start = start_in_words(sides[0]["evaluation"])
            by_reason.setdefault(f"window start {start}, the paper does not tell its own", []).append(stem)
    return tuple(f"{text} ({', '.join(tables)})" for text, tables in by_reason.items())


def _setting(settings: object, path: tuple[str, ...]) -> object:
    for key in path:
        settings = settings.get(key, _UNWRITTEN.get(key)) if isinstance(settings, dict) else None
    return settings


def _windows(manifest: Json, stem: str) -> int | None:
    """How many evaluation windows are behind a table, by the manifest."""
    samples = _setting(manifest, ("files", f"{stem}.parquet", "spec", "evaluation", "samples"))
    return samples if isinstance(samples, int) else None


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
    counts = comparison.cells.group_by("quantity", maintain_order=True).agg(
        cells=pl.len(), within=pl.col("within").sum(), tested=pl.col("z").count(),
        beyond_noise=(pl.col("p_holm") <= LEVEL).sum(), median_relative_difference=relative.median(),
    )  # fmt: skip
    return counts.sort("quantity")


def noise_sentences(cells: pl.DataFrame) -> tuple[str, ...]:
    """What z and Holm say of the cells of a comparison, in words: those with a standard error, then the others."""
    tested, others = cells.filter(pl.col("z").is_not_null()), cells.filter(pl.col("z").is_null())
    sentences = []
    if tested.height:
        sentences.append(
            f"{differing(tested).height} of {tested.height} cells with a standard error differ from the printed value "
            f"beyond rounding and noise (Holm over every cell with one, level {LEVEL:g}). The noise is the run's own, "
            "by its stored standard errors; the paper's is not printed."
        )
    if others.height:
        beyond = others.height - int(others["within"].sum())
        sentences.append(
            f"{others.height} cells have no stored standard error or a printed value at the model's numerical ceiling; "
            f"{beyond} of them differ by more than rounding, and nothing here says whether that is noise."
        )
    return tuple(sentences)


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
        content = bounds.json_of(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({error}); give a results_….json of `lm_eval --output_path`") from None
    results, lines = _object(content, "results"), []
    theirs = {task: one for task, one in results.items() if _number(_object(results, task).get(_METRIC)) is not None}
    for task, items, accuracy, stderr in ours.select("task", "items", "accuracy", "stderr").iter_rows():
        if task not in theirs:
            continue
        there, their_stderr = float(theirs[task][_METRIC]), _number(theirs[task].get(_STDERR))
        width = None if stderr is None or their_stderr is None else _Z * (stderr**2 + their_stderr**2) ** 0.5
        difference = accuracy - there
        ends = (None, None) if width is None else (difference - width, difference + width)
        shots, version = _object(content, "n-shot").get(task, 0), _object(content, "versions").get(task)
        otherwise = [f"{shots} shots"] if shots else []
        if version is not None and _number(version) != _number(versions[task]):
            otherwise.append(f"version {version}, here {versions[task]}")
        asked = _object(_object(content, "n-samples"), task).get("effective")
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
