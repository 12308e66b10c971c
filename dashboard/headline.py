"""The headline of a run: is a selector's ranking reproducible, and does it find what matters?"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from dashboard import palette, series
from engine.analysis.verdict import BASELINE, Thresholds
from engine.errors import InputError

RATE = Thresholds().rate
STABLE_VALID, UNSTABLE_VALID = "stable and valid", "valid, not stable"
STABLE_INVALID, UNSTABLE_INVALID = "stable but invalid", "neither"


def scatter(sweep: pl.DataFrame, stability: pl.DataFrame, model: str) -> pl.DataFrame:
    """One row per selector that sees text: how stable its scores are, how valid its ranking is at `RATE`.

    Columns: selector, spearman (scores of the smallest calibration size against those of the largest), size,
    reference_size, log_gap = NLL_MoRF - NLL_LeRF (nats), damage (NLL added by LeRF / added by random LeRF;
    null without random), quadrant. Valid, by the thresholds of the verdicts: a log gap of one nat or more,
    and damage not close to that of chance. `InputError` where nothing is left to show.
    """
    limits = Thresholds()
    smallest = (
        stability.filter(pl.col("size") < pl.col("reference_size"), pl.col("spearman").is_not_null())
        .sort("selector", "size", maintain_order=True)
        .unique("selector", keep="first", maintain_order=True)
        .select("selector", "spearman", "size", "reference_size")
    )
    table = smallest.join(validity(sweep, model), on="selector").filter(pl.col("log_gap").is_finite())
    if table.is_empty():
        raise InputError(
            "no selector has both a stability and a sweep in both orders at "
            f"{RATE:.0%}; run `selector-audit analyze {model} sweep stability`"
        )
    stable = pl.col("spearman") >= limits.spearman
    chance = pl.col("damage").fill_null(0.0) > limits.invalid_damage
    valid = (pl.col("log_gap") >= limits.log_gap) & ~chance
    quadrant = (
        pl.when(stable & valid).then(pl.lit(STABLE_VALID))
        .when(valid).then(pl.lit(UNSTABLE_VALID))
        .when(stable).then(pl.lit(STABLE_INVALID))
        .otherwise(pl.lit(UNSTABLE_INVALID))
    )  # fmt: skip
    return _ordered(table.with_columns(quadrant=quadrant))


def validity(sweep: pl.DataFrame, model: str) -> pl.DataFrame:
    """Columns selector, log_gap, damage at `RATE`, as in `scatter`; seeds are averaged in NLL."""
    points = series.points(sweep, model, sweep["selector"].unique().to_list(), ["lerf", "morf"], (RATE, RATE))
    gaps = series.gaps(points)
    dense = series.unmasked_nll(sweep, model)
    chance = gaps.filter(selector=BASELINE)["nll_lerf"].to_list()
    damage = pl.lit(None, pl.Float64)
    if dense is not None and chance and chance[0] > dense:
        damage = (pl.col("nll_lerf") - dense) / (chance[0] - dense)
    return gaps.select("selector", "log_gap", damage.alias("damage"))


def snapshot(sweeps: Mapping[str, tuple[pl.DataFrame, str]]) -> pl.DataFrame:
    """LeRF at `RATE` over models. sweeps: label -> (curves, model).

    Columns: label, selector, nll, printed, unmasked_nll; models that were not measured at `RATE` are left out.
    """
    parts = []
    for label, (curves, model) in sweeps.items():
        selectors = curves["selector"].unique().to_list()
        points = series.points(curves, model, selectors, ["lerf"], (RATE, RATE))
        unmasked = series.unmasked_nll(curves, model)
        parts.append(
            _ordered(points).select(
                pl.lit(label).alias("label"), "selector", "nll", "printed",
                pl.lit(unmasked, pl.Float64).alias("unmasked_nll"),
            )
        )  # fmt: skip
    if not any(part.height for part in parts):
        raise InputError(f"no model here was measured under LeRF at {RATE:.0%}; run `selector-audit sweep`")
    return pl.concat(parts)


def _ordered(table: pl.DataFrame) -> pl.DataFrame:
    order = {name: place for place, name in enumerate(palette.in_order(table["selector"].to_list()))}
    return table.sort(pl.col("selector").replace_strict(order, return_dtype=pl.Int64), maintain_order=True)
