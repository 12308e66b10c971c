"""Findings of which rows are taken: overlaps of pairs, peaks over the depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from dashboard.charts import formats, matrix
from dashboard.charts.findings import words
from engine.stats.limits import BASELINE

End = tuple[str, str]  # a pair, what it has


def overlap(jaccard: pl.DataFrame, rate: float, *, above_chance: bool = False) -> str:
    """The pairs of one rate of `jaccard` that share most and least; Random counts where all pairs hold it."""
    value = pl.col("jaccard") - pl.col("expected_random") if above_chance else pl.col("jaccard")
    part = jaccard.filter((pl.col("rate") - rate).abs() < 1e-9).with_columns(value=value)
    part = part.filter(pl.col("value").is_not_null())
    if part.is_empty():
        return f"No overlap is known at {formats.rate(rate)}"
    aside, least, most = _ends(part, lambda row: f"{_pair(row)} in {_where(row)}")
    what = "Jaccard above chance" if above_chance else "Jaccard"
    if least == most:
        return f"All pairs share as many rows at {formats.rate(rate)}: {what} {most[1]}"
    return f"{aside}{most[0]} share most at {formats.rate(rate)}, {what} {most[1]}; {least[0]} least, {least[1]}"


def correlation(spearman: pl.DataFrame) -> str:
    """The pairs that rank the rows most and least alike."""
    part = spearman.filter(pl.col("spearman").is_not_null()).rename({"spearman": "value"})
    if part.is_empty():
        return "No rank correlation is known"
    aside, least, most = _ends(part, _pair)
    if least == most and part.height > 1:
        return f"All pairs rank rows alike, Spearman {most[1]}"
    first = f"{aside}{most[0]} rank rows most alike, Spearman {most[1]}"
    return first if least == most else f"{first}; {least[0]} least, {least[1]}"


def _ends(pairs: pl.DataFrame, name: Callable[[Mapping[str, str]], str]) -> tuple[str, End, End]:
    """What is left aside, in words (Random, where other pairs are known), then the pairs of the lowest and of the
    highest `value`; those that look alike, as it is shown, are counted."""
    known = pairs.filter(pl.col("selector_a") != BASELINE, pl.col("selector_b") != BASELINE)
    rows = (known if known.height else pairs).sort("value", maintain_order=True).rows(named=True)
    ends: list[End] = []
    for row in (rows[0], rows[-1]):
        shown = matrix.number(row["value"])
        more = sum(matrix.number(other["value"]) == shown for other in rows) - 1
        also = f" (and {more} more pair{'s' * (more > 1)})" if more else ""
        ends.append((name(row) + also, shown))
    return "Random aside, " * (0 < known.height < pairs.height), *ends


def _pair(row: Mapping[str, str]) -> str:
    return words.titles([row["selector_a"], row["selector_b"]])


def _where(row: Mapping[str, str]) -> str:
    return {"mlp": "the MLP", "attention": "attention"}.get(row["sublayer"], row["sublayer"])


def spread(layers: pl.DataFrame, kind: str, name: str, other: str = "") -> str:
    """The layers at the ends of a map. layers: one per line, with `value`.
    kind: `score` (mean score of its rows), `share` (of its rows that a mask takes, `name` being the mask) or
    `difference` (mean percentile under `name` minus that under `other`, in points, whose mean over all rows is 0)."""
    known = layers.filter(pl.col("value").is_finite()).sort("value", maintain_order=True)
    if known.is_empty():
        return f"{name}: no value is finite"
    least, most = known.row(0, named=True), known.row(-1, named=True)
    if least["value"] == most["value"]:
        return f"{name}: all layers alike"
    first, last = _layer(most), _layer(least)
    if kind == "score":
        return f"{name} scores the rows of {first} highest on average, those of {last} lowest"
    if kind == "share":
        return (
            f"{name} takes most of {first}, {most['value']:.0%} of its rows, and least of {last}, {least['value']:.0%}"
        )
    up, down = (f"{abs(row['value']):.0f}" for row in (most, least))
    return (
        f"{name} ranks the rows of {first} higher than {other} does, by {up} points, those of {last} lower, by {down}"
    )


def _layer(row: Mapping[str, object]) -> str:
    return f"block {row['block']} {row['projection']}"


def peaks(profile: pl.DataFrame, column: str, name: str = "") -> str:
    """In which block every selector's mean score is highest; the blocks with most selectors first, two of them named.
    Random, whose scores mean nothing, counts where it stands alone."""
    known = profile.filter(pl.col(column).is_finite())
    known = known.filter(pl.col("selector") != BASELINE) if (known["selector"] != BASELINE).any() else known
    if known.is_empty():
        return f"{name or 'Scores'}: none is finite"
    at: dict[int, list[str]] = {}
    for (selector,), part in known.group_by("selector", maintain_order=True):
        at.setdefault(part.sort(column, maintain_order=True)["block"][-1], []).append(str(selector))
    ordered = sorted(at.items(), key=lambda item: (-len(item[1]), item[0]))
    start = f"{name}: scores peak" if name else "Scores peak"
    if len(ordered) == 1 and len(ordered[0][1]) > 1:
        return f"{start} in block {ordered[0][0]} for all {len(ordered[0][1])} selectors"
    told = [f"in block {block} for {words.titles(names, 3)}" for block, names in ordered[:2]]
    others = [name for _, names in ordered[2:] for name in names]
    return f"{start} {', '.join(told)}" + (f", in others for {words.titles(others, 3)}" if others else "")
