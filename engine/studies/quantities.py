"""The published numbers and where both kinds of results folder have them, as cells that can be joined."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from engine.results.tables import HALF_UNIT, spec
from engine.stats.printed import noise_of

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
        quantity,
        table,
        published=pl.col(quantity.value).cast(pl.Float64),
        half_unit=f"{quantity.value}{HALF_UNIT}",
        at_ceiling=ceiling.fill_null(value=False),
    )
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
        quantity,
        table,
        measured=value.cast(pl.Float64),
        log=nothing if quantity.log is None else quantity.log,
        error=nothing if error is None or error not in table.columns else pl.col(error),
        units=units,
    )
    found = cells.group_by(list(KEYS), maintain_order=True).agg("measured", "log", "error", pl.col("units").first())
    numbers = [_mean(*row) for row in found.select("measured", "log", "error", "units").iter_rows()]
    names = ("measured", "log_measured", "stderr", "degrees")
    return found.select(*KEYS).hstack(pl.DataFrame(numbers, schema=dict.fromkeys(names, pl.Float64), orient="row"))


def _mean(
    values: list[float | None], logs: list[float | None], errors: list[float | None], units: int | None
) -> tuple[float | None, ...]:
    """Mean over seeds, its logarithm, and its noise: of the logarithm where there is one, else of the mean."""
    there = [value for value in values if value is not None]
    mean = sum(there) / len(there) if there else None
    if mean is None or len(there) < len(values):
        return mean, None, None, None
    known = [log for log in logs if log is not None]
    if len(known) < len(values):
        noise = noise_of(there, errors, units)
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
