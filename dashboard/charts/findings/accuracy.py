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
    seeds, chance.

    Above chance: by more standard errors than the one-sided normal quantile at `LEVEL` over the selectors (Bonferroni).
    Without chance levels, as published, the selector that keeps most of the unmasked model's accuracy."""
    counts = points.group_by("rate").len()
    shared = counts.filter(pl.col("len") == points["selector"].n_unique())["rate"].to_list()
    rate = words.nearest(shared or points["rate"].to_list(), wanted)
    if rate is None:
        return f"{heading}: only the unmasked model was measured"
    rows = points.filter((pl.col("rate") - rate).abs() < 1e-9, pl.col("accuracy").is_finite())
    when = f"with {formats.rate(rate)} removed"
    if rows.is_empty():
        return f"{heading}: no accuracy is known {when}"
    if rows["chance"].null_count():
        return f"{heading}: {_kept(points, rows, when)}"
    spread = pl.when(pl.col("seeds") > 1).then(pl.col("error")).otherwise(0.0)
    rows = rows.with_columns(error=(pl.col("item_error") ** 2 + spread**2).sqrt())
    errors = rows["error"].null_count() == 0
    far = NormalDist().inv_cdf(1 - LEVEL / rows.height) if errors else 0.0
    over = rows.filter(pl.col("accuracy") - far * pl.col("error").fill_null(0.0) > pl.col("chance"))
    beyond = " beyond the errors" if errors else ""
    names = over["selector"].to_list()
    if not names:
        return f"{heading}: no selector stays above chance{beyond} {when}"
    who = f"all {rows.height} selectors" if len(names) == rows.height > 1 else words.titles(names)
    return f"{heading}: {who} {words.verb(names, 'stays', 'stay')} above chance{beyond} {when}"


def _kept(points: pl.DataFrame, rows: pl.DataFrame, when: str) -> str:
    best = rows.sort("accuracy", maintain_order=True).row(-1, named=True)
    told = f"{palette.title(best['selector'])} keeps most {when}, {best['accuracy']:.1%}"
    whole = points.filter(pl.col("rate") == 0)["accuracy"].mean()
    return f"{told} of {whole:.1%} unmasked" if isinstance(whole, float) else told
