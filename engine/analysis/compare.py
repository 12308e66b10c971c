"""A finished run on one of the paper's models beside the published tables: order and sign first, then cell by cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from engine.errors import InputError, unknown
from engine.records import Json, read_manifest
from engine.tables import read_table, table_names
from precomputed.paper_cells import KEYS, SCHEMA, published_cells


@dataclass(frozen=True)
class Comparison:
    """How a run compares with the published tables.

    orders: quantity, order, rate, selectors, pairs, agreeing, kendall - of the pairs of selectors that the
        printed digits tell apart, how many stand in the same order here; kendall = (agreeing - not) / pairs.
    signs: selector, rate, published_gap, measured_gap (PPL), published, measured - of every validity gap.
    cells: `precomputed.paper_cells.SCHEMA` with `measured`, `difference` and `within` (half a printed unit).
    missing: published cells per quantity that the run did not measure.
    departures: what was measured otherwise than in the paper, in words, with the tables that it is true of.
    """

    model: str
    orders: pl.DataFrame
    signs: pl.DataFrame
    cells: pl.DataFrame
    missing: dict[str, int]
    departures: tuple[str, ...]


def paper_model(model_id: str) -> str | None:
    """The paper's name of a model id or folder; None where it is none of the paper's base models."""
    name = _plain(model_id.rstrip("/").rpartition("/")[2])
    for known in published_cells()["model"].unique().to_list():
        if name == _plain(known):
            return str(known)
    return None


def compare(folder: Path, model: str | None = None) -> Comparison:
    """Compare every published cell that the run in `folder` measured. model: the paper's name, if it is not clear.

    Errors: InputError for a run on none of the paper's models, and for a folder without a comparable table.
    """
    known = sorted(published_cells()["model"].unique().to_list())
    if model is not None and model not in known:
        raise unknown("model of the paper", model, known)
    run_model = str((read_manifest(folder).get("model") or {}).get("id", "unknown"))
    name = model or paper_model(run_model)
    if name is None:
        raise InputError(
            f"{folder} holds results of {run_model}, which is none of the paper's models ({', '.join(known)}); "
            "name the one it stands for with --paper-model"
        )
    there = [stem for stem in _MEASURED if stem in table_names(folder)]
    if not there:
        raise InputError(
            f"{folder} holds none of the tables that the paper has; run `selector-audit analyze {run_model} all`"
        )
    measured = pl.concat([part for stem in there for part in _MEASURED[stem](read_table(folder, stem))])
    published = published_cells().filter(model=name).with_columns(pl.col("rate").round(6))
    joined = published.join(
        measured, on=[key for key in KEYS if key != "model"], how="left", nulls_equal=True
    )
    cells = joined.filter(pl.col("measured").is_not_null()).with_columns(
        difference=pl.col("measured") - pl.col("published")
    )
    # The printed number may stand for anything within half a unit; one part in 1e9 is for the arithmetic.
    slack = pl.col("half_unit") + 1e-9 * pl.col("published").abs()
    cells = cells.with_columns(within=pl.col("difference").abs() <= slack)
    gone = joined.filter(pl.col("measured").is_null())["quantity"].value_counts()
    missing = dict(gone.sort("quantity").iter_rows())
    return Comparison(
        name, orders(cells), signs(cells), cells, missing, departures(read_manifest(folder), there)
    )


def departures(manifest: Json, stems: Sequence[str]) -> tuple[str, ...]:
    """Where the settings behind the tables are not the paper's. What a manifest leaves out is not told."""
    from engine.analysis.plan import AuditPlan  # brings torch, which the app's first page must not wait for

    paper = AuditPlan()
    wanted: dict[str, tuple[tuple[str, ...], object]] = {
        "calibration text": (("scores", "calibration", "corpus"), paper.scoring.corpus),
        "calibration windows": (("scores", "calibration", "samples"), paper.scoring.samples),
        "tokens per calibration window": (("scores", "calibration", "length"), paper.scoring.length),
        "objective": (("scores", "objective"), paper.scoring.objective),
        "evaluation text": (("evaluation", "corpus"), paper.eval_corpus),
        "evaluation windows": (("evaluation", "samples"), paper.eval_samples),
        "tokens per evaluation window": (("evaluation", "length"), paper.eval_length),
    }
    found: dict[str, list[str]] = {}
    for stem in stems:
        spec = manifest.get("files", {}).get(f"{stem}.parquet", {}).get("spec", {})
        for what, (path, value) in wanted.items():
            there = spec
            for key in path:
                there = there.get(key) if isinstance(there, dict) else None
            if there is not None and there != value:
                found.setdefault(f"{what} {there}, the paper's is {value}", []).append(stem)
    return tuple(f"{text} ({', '.join(tables)})" for text, tables in found.items())


def orders(cells: pl.DataFrame) -> pl.DataFrame:
    """Does the run put the selectors in the published order? Per quantity, order and rate, over all pairs.

    Only pairs count that the printed digits tell apart (further apart than both half units).
    """
    wanted = cells.filter(pl.col("quantity").is_in(["perplexity", "control_perplexity"]))
    keys = ["quantity", "order", "rate"]
    columns = [*keys, "selector", "published", "half_unit", "measured"]
    pairs = (
        wanted.select(columns)
        .join(wanted.select(columns), on=keys, suffix="_b")
        .filter(pl.col("selector") < pl.col("selector_b"))
        .filter(
            (pl.col("published") - pl.col("published_b")).abs() > pl.col("half_unit") + pl.col("half_unit_b")
        )
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
    """Per quantity: cells compared, how many within half a printed unit, median relative difference."""
    nonzero = pl.when(pl.col("published") != 0).then(pl.col("published"))  # no relative difference to 0
    relative = (pl.col("difference") / nonzero).abs()
    return (
        comparison.cells.group_by("quantity", maintain_order=True)
        .agg(cells=pl.len(), within=pl.col("within").sum(), median_relative_difference=relative.median())
        .sort("quantity")
    )


def _plain(name: str) -> str:
    """`Meta-Llama-3.1-8B` and `llama-3.1-8b` are one model; `-pt` and `-Base` name the base model."""
    return re.sub(r"-(pt|base|hf)$", "", name.lower().removeprefix("meta-"))


def _measured(quantity: str, table: pl.DataFrame, **columns: object) -> pl.DataFrame:
    """The key columns and `measured`, averaged over seeds as the paper does (arithmetic mean)."""
    keys = [key for key in KEYS if key != "model"]
    given = {"quantity": pl.lit(quantity)} | {name: _expression(value) for name, value in columns.items()}
    full = table.with_columns(**given)
    absent = [pl.lit(None).cast(SCHEMA[key]).alias(key) for key in keys if key not in full.columns]
    selected = full.with_columns(absent).select(
        *(pl.col(key).cast(SCHEMA[key]) for key in keys), pl.col("measured").cast(pl.Float64)
    )
    rounded = selected.with_columns(pl.col("rate").round(6))
    return rounded.group_by(keys, maintain_order=True).agg(pl.col("measured").mean())


def _expression(value: object) -> pl.Expr:
    return value if isinstance(value, pl.Expr) else pl.col(str(value))


def _sweep(table: pl.DataFrame) -> list[pl.DataFrame]:
    return [_measured("perplexity", table, measured=pl.col("nll").exp())]


def _stability(table: pl.DataFrame) -> list[pl.DataFrame]:
    # The table has one line per rate; Spearman is the same on all of them.
    return [
        _measured("stability_perplexity", table, measured=pl.col("nll").exp()),
        _measured("stability_jaccard", table, measured="jaccard"),
        _measured("stability_spearman", table, measured="spearman", rate=pl.lit(None, pl.Float64)),
    ]


def _pairs(quantity: str) -> Callable[[pl.DataFrame], list[pl.DataFrame]]:
    def measured(table: pl.DataFrame) -> list[pl.DataFrame]:
        first = pl.min_horizontal("selector_a", "selector_b")
        second = pl.max_horizontal("selector_a", "selector_b")
        apart = table.filter(pl.col("selector_a") != pl.col("selector_b"))
        return [_measured(quantity, apart, selector=first, other=second, measured=quantity)]

    return measured


def _controls(table: pl.DataFrame) -> list[pl.DataFrame]:
    own = table.filter(pl.col("size_matched_to").is_null())
    return [_measured("control_perplexity", own, selector="control", measured=pl.col("nll").exp())]


def _rank_distribution(table: pl.DataFrame) -> list[pl.DataFrame]:
    long = table.unpivot(
        ["both", "only_one", "neither"], index="rate", variable_name="category", value_name="measured"
    )
    return [
        _measured("rank_distribution", long, selector=pl.lit("consensus2"), other="category", measured="measured")
    ]  # fmt: skip


def _dangerous(table: pl.DataFrame) -> list[pl.DataFrame]:
    return [
        _measured("dangerous_groups", table, measured="dangerous_groups"),
        _measured("dangerous_share", table, measured="share"),
    ]


def _domain(table: pl.DataFrame) -> list[pl.DataFrame]:
    none = pl.lit(None, pl.Float64)
    return [
        _measured("domain_spearman", table, rate=none, measured="spearman"),
        _measured("domain_jaccard", table, measured="jaccard"),
        _measured("domain_lerf_ppl", table, other="corpus_a", measured=pl.col("nll_a").exp()),
        _measured("domain_lerf_ppl", table, other="corpus_b", measured=pl.col("nll_b").exp()),
    ]


def _downstream(table: pl.DataFrame) -> list[pl.DataFrame]:
    # LeRF throughout; at rate 0 every selector is the unmasked model, which the paper prints once.
    selector = pl.when(pl.col("rate") == 0).then(pl.lit("dense")).otherwise("selector")
    order = pl.lit(None, pl.String)
    return [_measured("accuracy", table, selector=selector, other="task", order=order, measured="accuracy")]


_MEASURED: dict[str, Callable[[pl.DataFrame], list[pl.DataFrame]]] = {
    "sweep": _sweep,
    "stability": _stability,
    "jaccard": _pairs("jaccard"),
    "spearman": _pairs("spearman"),
    "controls": _controls,
    "rank_distribution": _rank_distribution,
    "dangerous_summary": _dangerous,
    "domain": _domain,
    "downstream": _downstream,
}
