"""Findings of stability against validity, and of how alike calibrations come out."""

from __future__ import annotations

import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.findings import words


def judged(verdicts: pl.DataFrame) -> str:
    """Of the table of verdicts: judged stable but invalid, or that nobody is. Published ones have numbers only."""
    known = verdicts.filter(pl.col("stable_but_invalid").is_not_null())
    if known.is_empty():
        return "Printed numbers without verdicts: stable is to the right, valid is up"
    stable = known.filter(pl.col("stability") == "stable")["selector"].to_list()
    bad = known.filter("stable_but_invalid")["selector"].to_list()
    if bad:
        valid = known.filter(pl.col("validity").is_in(["faithful", "sufficient"]))
        both, unstable = (valid.filter(stability=word)["selector"].to_list() for word in ("stable", "not"))
        told = [f"{words.titles(bad)} {words.verb(bad, 'is', 'are')} stable but invalid"]
        if unstable:
            told.append(f"{words.titles(unstable)} {words.verb(unstable, 'is', 'are')} valid but not stable")
        is_both = f"{words.titles(both)} {words.verb(both, 'is', 'are')} stable and valid"
        return "; ".join([*told, is_both if both else "no score is shown to be both"])
    if not stable:
        return "No selector is judged stable, so none is stable but invalid"
    return f"None of the {len(stable)} stable selector{'s' if len(stable) > 1 else ''} is judged invalid"


def between_draws(draws: pl.DataFrame, limit: float) -> str:
    """Of one rate of `draws`: whose masks overlap enough, in the mean of all pairs and in the least alike pair."""
    known = draws.filter(pl.col("jaccard").is_not_null())
    if known.is_empty():
        return "No overlap of two draws is defined"
    always = known.filter(pl.col("jaccard_min") >= limit)["selector"].to_list()
    mean = known.filter(pl.col("jaccard") >= limit, pl.col("jaccard_min") < limit)["selector"].to_list()
    short = known.filter(pl.col("jaccard") < limit)["selector"].to_list()
    parts = []
    if always:
        least = known.filter(pl.col("selector").is_in(always))["jaccard_min"].min()
        assert isinstance(least, float)
        named = f"All {len(always)} selectors" if len(always) == known.height > 1 else words.titles(always)
        parts.append(f"{named}: another text changes the mask little, Jaccard {_down(least)} or more in every pair")
    if mean:
        parts.append(f"{words.titles(mean)} {words.verb(mean, 'reaches', 'reach')} {limit:g} only in the mean of pairs")
    if short:
        parts.append(f"{words.titles(short)} {words.verb(short, 'falls', 'fall')} short of {limit:g}")
    return "; ".join(parts)


def _down(share: float) -> str:
    """A share with two decimals, rounded down, so that "or more" holds."""
    return f"{int(share * 100 + 1e-9) / 100:.2f}"


def less_text(table: pl.DataFrame, column: str, what: str) -> str:
    """Nested sizes: the smallest against all windows. column: spearman or jaccard (1 is the same), or nll."""
    smallest = table.filter(pl.col(column).is_not_null(), pl.col("size") < pl.col("reference_size"))
    if smallest.is_empty():
        return f"{what}: one size only, nothing to compare"
    size = min(smallest["size"].to_list())
    rows = smallest.filter(pl.col("size") == size)
    if column == "nll":
        return _cost(table, rows, size)
    least, most = (rows.sort(column, maintain_order=True).row(place, named=True) for place in (0, -1))
    first = f"From {size} of {least['reference_size']} windows, {what} is {least[column]:.2f}"
    if rows.height == 1 or least[column] == most[column]:
        return f"{first} for {words.titles(rows['selector'].to_list())}"
    return f"{first} ({palette.title(least['selector'])}) to {most[column]:.2f} ({palette.title(most['selector'])})"


def _cost(table: pl.DataFrame, rows: pl.DataFrame, size: int) -> str:
    """The selector whose LeRF perplexity differs most between the smallest size and all windows, as measured."""
    full = table.filter(pl.col("size") == pl.col("reference_size")).select("selector", whole="nll")
    both = rows.join(full, on="selector").filter(pl.col("nll").is_finite(), pl.col("whole").is_finite())
    if both.is_empty():
        return f"LeRF perplexity from {size} windows; that from all was not measured"
    row = both.sort((pl.col("nll") - pl.col("whole")).abs(), maintain_order=True).row(-1, named=True)
    return (
        f"From {size} instead of {row['reference_size']} windows, {palette.title(row['selector'])} changes most: "
        f"perplexity {formats.perplexity(row['whole'])} becomes {formats.perplexity(row['nll'])}"
    )
