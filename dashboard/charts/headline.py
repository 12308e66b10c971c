"""The headline of a run: is a selector's ranking reproducible, and does it find what matters?"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dashboard.charts import palette, series
from engine.records.errors import InputError
from engine.stats.limits import BASELINE, Thresholds
from engine.studies.verdict.judged_selectors import against_half

RATE = Thresholds().rate
STABLE_VALID, UNSTABLE_VALID = "stable and valid", "valid, not stable"
STABLE_INVALID, UNSTABLE_INVALID = "stable but invalid", "neither"


def scatter(
    sweep: pl.DataFrame, stability: pl.DataFrame, model: str, verdicts: pl.DataFrame | None = None
) -> pl.DataFrame:
    """One row per selector that sees text: how stable its scores are, how valid its ranking is at `RATE`.

    Columns: selector, spearman and jaccard (scores and masks of half the calibration windows against those of all,
    `against_half`: nested sizes, which every results folder has), size, reference_size, log_gap = NLL_MoRF - NLL_LeRF
    (nats), damage (NLL added by LeRF / added by random LeRF; null without random), corner: where the thresholds put
    these two numbers, quadrant: what is so, and verdict: its words, null where `verdicts` (the table) does not judge
    the selector.
    The quadrant is the verdict's: valid unless it says `not`. Without one it goes by the verdicts' thresholds on the
    numbers that are here; an unknown Jaccard or damage speaks neither for nor against. `InputError` where nothing is
    left to show.
    """
    limits = Thresholds()
    at_rate = stability.filter((pl.col("rate") - RATE).abs() < 1e-9)
    known = at_rate if at_rate.height else stability.with_columns(jaccard=pl.lit(None, pl.Float64))
    lines = against_half(known.filter(pl.col("spearman").is_not_null()))
    lines = lines.select("selector", "spearman", "jaccard", "size", "reference_size")
    table = lines.join(validity(sweep, model), on="selector").filter(pl.col("log_gap").is_finite())
    if table.is_empty():
        raise InputError(
            "no selector has both a stability and a sweep in both orders at "
            f"{RATE:.0%}; run `selector-audit analyze {model} sweep stability`"
        )
    empty = pl.DataFrame(schema=dict.fromkeys(("selector", "validity", "stability"), pl.String))
    judged = (empty if verdicts is None else verdicts).select("selector", "validity", "stability")
    table = table.join(judged, on="selector", how="left", maintain_order="left")
    alike, large = pl.col("spearman") >= limits.spearman, pl.col("log_gap") >= limits.log_gap
    same_masks = pl.col("jaccard").fill_null(1.0) >= limits.jaccard
    spares = pl.col("damage").fill_null(0.0) <= limits.invalid_damage
    stable = pl.coalesce(pl.col("stability") == "stable", alike & same_masks)
    valid = pl.coalesce(pl.col("validity") != "not", large & spares)
    words = pl.format("{}, {}", *(pl.col(name).replace(said) for name, said in _SAID.items()))
    table = table.with_columns(corner=_quadrant(alike, large), quadrant=_quadrant(stable, valid), verdict=words)
    return _ordered(table.drop("validity", "stability"))


_SAID = {
    "validity": {"partly": "partly faithful", "not": "not faithful", "sufficient": "sufficient, not shown faithful"},
    "stability": {"not": "not stable", "unknown": "stability unknown", "not applicable": "needs no text"},
}


def _quadrant(stable: pl.Expr, valid: pl.Expr) -> pl.Expr:
    return (
        pl.when(stable & valid).then(pl.lit(STABLE_VALID))
        .when(valid).then(pl.lit(UNSTABLE_VALID))
        .when(stable).then(pl.lit(STABLE_INVALID))
        .otherwise(pl.lit(UNSTABLE_INVALID))
    )  # fmt: skip


def validity(sweep: pl.DataFrame, model: str) -> pl.DataFrame:
    """Columns selector, log_gap, damage at `RATE`, as in `scatter`; seeds are averaged in NLL. Losses count up to where
    the model is destroyed; null where both orders destroy it."""
    points = series.points(sweep, model, sweep["selector"].unique().to_list(), ["lerf", "morf"], (RATE, RATE))
    gaps = series.gaps(points)
    dense = series.unmasked_nll(sweep, model)
    harm = points.filter(order="lerf").select("selector", pl.col("counted") - dense)
    chance = harm.filter(selector=BASELINE)["counted"].to_list()
    damage = pl.lit(None, pl.Float64)
    if dense is not None and chance and chance[0] > 0:
        damage = pl.col("counted") / chance[0]
    return gaps.join(harm, on="selector").select(
        "selector", pl.col("counted_gap").alias("log_gap"), damage.alias("damage")
    )


def snapshot(sweeps: Mapping[str, tuple[pl.DataFrame, str]]) -> pl.DataFrame:
    """LeRF at `RATE` over models. sweeps: label -> (curves, model).

    Columns: label, selector, nll, error (`series.whole_error`), printed, destroyed, unmasked_nll; models that were not
    measured at `RATE` are left out.
    """
    parts = []
    for label, (curves, model) in sweeps.items():
        selectors = curves["selector"].unique().to_list()
        points = series.points(curves, model, selectors, ["lerf"], (RATE, RATE))
        unmasked = series.unmasked_nll(curves, model)
        parts.append(
            _ordered(points).select(
                pl.lit(label).alias("label"), "selector", "nll", series.whole_error().alias("error"), "printed",
                "destroyed",
                pl.lit(unmasked, pl.Float64).alias("unmasked_nll"),
            )
        )  # fmt: skip
    if not any(part.height for part in parts):
        raise InputError(f"no model here was measured under LeRF at {RATE:.0%}; run `selector-audit sweep`")
    return pl.concat(parts)


def _ordered(table: pl.DataFrame) -> pl.DataFrame:
    order = {name: place for place, name in enumerate(palette.in_order(table["selector"].to_list()))}
    return table.sort(pl.col("selector").replace_strict(order, return_dtype=pl.Int64), maintain_order=True)
