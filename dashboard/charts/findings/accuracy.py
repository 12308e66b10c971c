"""Findings of accuracy on tasks: who is still above chance, beyond the errors."""

from __future__ import annotations

from statistics import NormalDist

import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.findings import words
from dashboard.charts.findings.groups import LEVEL
from engine.stats.limits import Thresholds


def accuracy(points: pl.DataFrame, heading: str, wanted: float = Thresholds().rate) -> str:
    """At the rate nearest to `wanted` that every selector has. points: selector, rate, accuracy, error, item_error,
    seeds, chance. Who is `above_chance` with what is left; without chance levels, as published, the selector that keeps
    most of the unmasked model's accuracy."""
    rate, rows = _at(points, wanted)
    if rate is None:
        return f"{heading}: only the unmasked model was measured"
    when = f"with {formats.rate(rate)} removed"
    if rows.is_empty():
        return f"{heading}: no accuracy is known {when}"
    if rows["chance"].null_count():
        return f"{heading}: {_kept(points, rows, when)}"
    over = above_chance(points, wanted)
    beyond = " beyond the errors" if _with_errors(rows)["error"].null_count() == 0 else ""
    if over.is_empty():
        return f"{heading}: no selector stays above chance{beyond} {when}"
    if over.height == rows.height > 1:
        return f"{heading}: all {rows.height} selectors stay above chance{beyond} {when}"
    best = over.sort("accuracy", descending=True, maintain_order=True).select("selector", "accuracy").iter_rows()
    who = words.listed([f"{palette.title(name)} {share:.0%}" for name, share in best])
    rest = rows.filter(~pl.col("selector").is_in(over["selector"].implode()))["selector"].to_list()
    others = words.titles(rest) if len(rest) <= 2 else f"the other {len(rest)}"
    whole, chance = points.filter(pl.col("rate") == 0)["accuracy"].mean(), rows["chance"].mean()
    level = f", chance {chance:.0%}" if isinstance(chance, float) else ""
    of = f" ({whole:.0%} unmasked{level})" if isinstance(whole, float) else ""
    return f"{heading}: {who} {when}{of}; {others} {words.verb(rest, 'is', 'are')} not above chance{beyond}"


def rate_told(points: pl.DataFrame, wanted: float = Thresholds().rate) -> float | None:
    """The rate of which `accuracy` tells."""
    return _at(points, wanted)[0]


def above_chance(points: pl.DataFrame, wanted: float = Thresholds().rate) -> pl.DataFrame:
    """The points there of selectors above chance: by more standard errors than the one-sided normal quantile at
    `LEVEL` over the selectors (Bonferroni)."""
    rows = _with_errors(_at(points, wanted)[1])
    far = NormalDist().inv_cdf(1 - LEVEL / rows.height) if rows.height and rows["error"].null_count() == 0 else 0.0
    return rows.filter(pl.col("accuracy") - far * pl.col("error").fill_null(0.0) > pl.col("chance"))


def _at(points: pl.DataFrame, wanted: float) -> tuple[float | None, pl.DataFrame]:
    counts = points.group_by("rate").len()
    shared = counts.filter(pl.col("len") == points["selector"].n_unique())["rate"].to_list()
    rate = words.nearest(shared or points["rate"].to_list(), wanted)
    near = pl.lit(False) if rate is None else (pl.col("rate") - rate).abs() < 1e-9
    return rate, points.filter(near, pl.col("accuracy").is_finite())


def _with_errors(rows: pl.DataFrame) -> pl.DataFrame:
    """The error over items, of several seeds with that over seeds."""
    spread = pl.when(pl.col("seeds") > 1).then(pl.col("error")).otherwise(0.0)
    return rows.with_columns(error=(pl.col("item_error") ** 2 + spread**2).sqrt())


def _kept(points: pl.DataFrame, rows: pl.DataFrame, when: str) -> str:
    best = rows.sort("accuracy", maintain_order=True).row(-1, named=True)
    told = f"{palette.title(best['selector'])} keeps most {when}, {best['accuracy']:.1%}"
    whole = points.filter(pl.col("rate") == 0)["accuracy"].mean()
    return f"{told} of {whole:.1%} unmasked" if isinstance(whole, float) else told
