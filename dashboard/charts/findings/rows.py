"""Findings of which rows are taken: overlaps of pairs, peaks over the depth."""

from collections.abc import Callable, Collection, Mapping

import numpy as np
import polars as pl

from dashboard.charts import matrix, palette
from dashboard.charts.findings import words
from engine.stats.limits import BASELINE

_HARDLY = 0.5  # of what random rows share
_MADE_OF = {"consensus2": ("lrp", "ig")}
End = tuple[str, str]  # a pair, what it has


def overlap(jaccard: pl.DataFrame, place: str) -> str:
    """Of one rate and sublayer: how much half of the pairs share at most, and who share most; Random counts where all
    pairs hold it. place: what the sublayer is called."""
    pairs = jaccard.with_columns(value=pl.col("jaccard")).drop_nulls("value")
    if pairs.is_empty():
        return f"{place}: no overlap is known"
    least, most = _ends(pairs, _pair)
    if least == most:
        return f"{place}: all pairs share as many rows, {most[1]}"
    chance = pairs["expected_random"].mean()
    beside = f", random rows {matrix.number(chance)}" if isinstance(chance, float) else ""
    half = matrix.number(float(np.median(counted(pairs)["value"])))
    return f"{place}: half of the pairs share at most {half}{beside}; {most[0]} share most, {most[1]}"


def overlaps(sublayers: Mapping[str, pl.DataFrame], when: str) -> str:
    """Of one rate: who share most in the mean over the sublayers, and how many pairs share hardly more than random rows
    in each of them, by at most `_HARDLY` of what these share. sublayers: as `overlap`, by id."""
    if not (order := most_alike(sublayers)):
        return f"{when}: no overlap is known"
    tables = [table.drop_nulls("jaccard") for table in sublayers.values() if table["jaccard"].count()]
    where = ", in attention and MLP alike" if len(tables) > 1 else ""
    near = pl.col("jaccard") <= (1 + _HARDLY) * pl.col("expected_random")
    by_pair = pl.concat(map(counted, tables)).group_by("selector_a", "selector_b")
    hardly = by_pair.agg(near.fill_null(False).all())["jaccard"].sum()
    more = f"; {hardly} of {len(order)} pairs hardly more than random rows{where}" if hardly else ""
    return f"{when}: {words.titles(order[0])} share most{more}"


def most_alike(sublayers: Mapping[str, pl.DataFrame]) -> list[tuple[str, str]]:
    """The pairs that are named, those with the largest mean Jaccard over the sublayers first."""
    known = pl.concat([counted(table.drop_nulls("jaccard")) for table in sublayers.values()])
    means = known.group_by("selector_a", "selector_b", maintain_order=True).agg(pl.col("jaccard").mean())
    return means.sort("jaccard", descending=True, maintain_order=True).select("selector_a", "selector_b").rows()


def correlation(spearman: pl.DataFrame) -> str:
    """The pairs that rank the rows most and least alike."""
    pairs = spearman.filter(pl.col("spearman").is_not_null()).rename({"spearman": "value"})
    if pairs.is_empty():
        return "No rank correlation is known"
    least, most = _ends(pairs, _pair)
    if least == most and pairs.height > 1:
        return f"All pairs rank rows alike, Spearman {most[1]}"
    first = f"{most[0]} rank rows most alike, Spearman {most[1]}"
    return first if least == most else f"{first}; {least[0]} least, {least[1]}"


def _ends(pairs: pl.DataFrame, name: Callable[[Mapping[str, str]], str]) -> tuple[End, End]:
    """The pairs of the lowest and of the highest `value`; those that look alike, as it is shown, are counted."""
    rows = counted(pairs).sort("value", maintain_order=True).rows(named=True)
    ends: list[End] = []
    for row in (rows[0], rows[-1]):
        shown = matrix.number(row["value"])
        more = sum(matrix.number(other["value"]) == shown for other in rows) - 1
        also = f" (and {more} more pair{'s' * (more > 1)})" if more else ""
        ends.append((name(row) + also, shown))
    return ends[0], ends[1]


def counted(pairs: pl.DataFrame) -> pl.DataFrame:
    """Where others are known, pairs with Random and of a consensus with what it is made of do not count
    (`left_out`)."""
    both = pl.concat_list("selector_a", "selector_b").list
    made = pl.any_horizontal(
        both.contains(whole) & pl.any_horizontal(both.contains(one) for one in parts)
        for whole, parts in _MADE_OF.items()
    )
    known = pairs.filter(~both.contains(BASELINE) & ~made)
    return known if known.height else pairs


def left_out(selectors: Collection[str], how: str = "without colour") -> str:
    """What the sentences above do not name of these selectors' pairs, which `counts` says, and how it is shown."""
    made = [palette.title(whole) for whole, parts in _MADE_OF.items() if whole in selectors and {*parts} & {*selectors}]
    names = [palette.title(BASELINE)] * (BASELINE in selectors) + [f"{name} with what it is made of" for name in made]
    return f"; {how}: {', '.join(names)}" if names else ""


def counts(a: str, b: str) -> bool:
    """Is a pair neither with Random nor of a consensus and what it is made of?"""
    made = any({a, b} & {whole} and {a, b} & {*parts} for whole, parts in _MADE_OF.items())
    return BASELINE not in (a, b) and not made


def _pair(row: Mapping[str, str]) -> str:
    return words.titles([row["selector_a"], row["selector_b"]])


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
    if kind == "share" and {"removed", "rows"} <= set(known.columns) and known["projection"].n_unique() > 1:
        of = known.group_by("projection", maintain_order=True).agg(pl.col("removed").sum() / pl.col("rows").sum())
        (low, fewest), *_, (high, largest) = of.sort("removed", maintain_order=True).iter_rows()
        return f"{name} takes {largest:.0%} of all {high} rows, {fewest:.0%} of all {low} rows"
    first, last = (f"block {row['block']} {row['projection']}" for row in (most, least))
    pattern = _pattern(known, name, kind) if kind != "difference" else ""
    if pattern:
        return pattern
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


def _pattern(known: pl.DataFrame, name: str, kind: str) -> str:
    """Where most blocks have their highest value in one projection and their lowest in another: these; else ""."""
    blocks = known["block"].n_unique()
    ends = known.group_by("block").agg(
        low=pl.col("projection").sort_by("value").first(), high=pl.col("projection").sort_by("value").last()
    )
    (high, highs), (low, lows) = (
        ends[end].value_counts(sort=True).sort("count", end, descending=[True, False]).row(0) for end in ("high", "low")
    )
    if blocks < 3 or known["projection"].n_unique() < 3 or min(highs, lows) <= blocks / 2:
        return ""
    of = f" of {blocks} blocks"
    if kind == "score":
        return f"{name} scores {high} highest in {highs}{of}, {low} lowest in {lows}"
    return f"{name} takes the largest share of {high} in {highs}{of}, the smallest of {low} in {lows}"


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
    return f"{start} {', '.join(f'in block {block} for {words.titles(names, 3)}' for block, names in ordered[:2])}"


def uneven(masks: pl.DataFrame) -> str:
    """Whose masks take at least twice as large a share of the first third of the blocks as of the last, and the
    reverse. masks: selector, block, share of its rows that are removed, of one rate."""
    early, late = early_and_late(masks)
    sentences = [
        f"{words.titles(names, 99)} {words.verb(names, 'removes', 'remove')} more rows of {where} blocks than of "
        f"{other} ones"
        for names, where, other in ((early, "early", "late"), (late, "late", "early")) if names
    ]  # fmt: skip
    return (
        "; ".join(sentences)
        if sentences
        else "No mask removes twice as much of early blocks as of late ones, or the reverse"
    )


def early_and_late(masks: pl.DataFrame) -> tuple[list[str], list[str]]:
    """The selectors of `uneven`."""
    third, last = pl.col("block").max() / 3, pl.col("block").max()
    first, rest = (
        pl.col("share").filter(one).mean() for one in (pl.col("block") < third, pl.col("block") > last - third)
    )
    ends = masks.group_by("selector", maintain_order=True).agg(first=first, rest=rest)
    early, late = (
        ends.filter(pl.col(a) >= 2 * pl.col(b))["selector"].to_list() for a, b in (("first", "rest"), ("rest", "first"))
    )
    return early, late
