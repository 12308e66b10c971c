"""Findings of which rows are taken: overlaps of pairs, peaks over the depth."""

from collections.abc import Callable, Collection, Mapping

import polars as pl

from dashboard.charts import matrix, palette
from dashboard.charts.findings import finding_words as words
from engine.stats.limits import BASELINE

HARDLY = 1.5  # times the overlap of random rows
_MADE_OF = {"consensus2": ("lrp", "ig")}
End = tuple[str, str]  # a pair, what it has


def overlaps(sublayers: Mapping[str, pl.DataFrame], when: str) -> str:
    """Of one rate: whose masks overlap most, and how many pairs' hardly more than random rows (`by_pair`).
    sublayers: selector_a, selector_b, jaccard, expected_random, by name; when: which rows."""
    pairs, by = by_pair(sublayers)
    if pairs.is_empty():
        return f"{when}: no overlap of masks with rows is known"
    most, near = pairs.row(0, named=True), pairs["near"].sum()
    much = f"{most['value']:.1f}× random rows" if by == "times" else matrix.number(most["value"])
    others = f"; {near} of {pairs.height} pairs hardly more than random rows" * bool(near)
    return f"{when}: {_pair(most)} overlap most ({much}){others}"


def beside_random(jaccard: pl.DataFrame, every: bool = False) -> pl.DataFrame:
    """The pairs that are named, or every one, with rows in both masks. `times`: their Jaccard ÷ that expected of as
    many random rows of the sublayer; null where that is not known."""
    expected = pl.col("expected_random")
    known = jaccard.drop_nulls("jaccard")
    rows = (known if every else counted(known)).filter(expected.is_null() | (expected > 0))
    return rows.with_columns(times=pl.col("jaccard") / expected)


def by_pair(sublayers: Mapping[str, pl.DataFrame]) -> tuple[pl.DataFrame, str]:
    """The pairs that are named, those that overlap most first; with the column that `value` is of: the largest of their
    sublayers' `times`, or Jaccard where `times` is not known of all. near: is it, as shown, at most `HARDLY` times?"""
    known = pl.concat(map(beside_random, sublayers.values()))
    by = "jaccard" if known["times"].null_count() else "times"
    pairs = known.group_by("selector_a", "selector_b", maintain_order=True).agg(value=pl.col(by).max())
    near = (pl.col("value").round(1) <= HARDLY) & (by == "times")
    return pairs.with_columns(near=near).sort("value", descending=True, maintain_order=True), by


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
    """The pairs that `counts`; all of them where there are no others."""
    named = [counts(a, b) for a, b in pairs.select("selector_a", "selector_b").iter_rows()]
    return pairs.filter(pl.Series(named, dtype=pl.Boolean)) if any(named) else pairs


def left_out(selectors: Collection[str], how: str = "without colour") -> str:
    """What the sentences above do not name of these selectors' pairs, which `counts` says, and how it is shown."""
    composites = {whole: {*parts} & {*selectors} for whole, parts in _MADE_OF.items() if whole in selectors}
    names = [palette.title(BASELINE)] * (BASELINE in selectors)
    mixtures = ((palette.title(whole), words.titles([*parts])) for whole, parts in composites.items() if parts)
    names += [f"{whole} with {parts}, of which it is made" for whole, parts in mixtures]
    return f"; {how}: {', '.join(names)}" if names else ""


def counts(a: str, b: str) -> bool:
    """Is a pair neither with Random nor of a consensus and what it is made of?"""
    of_parts = any({a, b} & {whole} and {a, b} & {*parts} for whole, parts in _MADE_OF.items())
    return BASELINE not in (a, b) and not of_parts


def _pair(row: Mapping[str, str]) -> str:
    return words.titles([row["selector_a"], row["selector_b"]])


def spread(layers: pl.DataFrame, kind: str, name: str, other: str = "") -> str:
    """The projections at the ends of a map, by the mean over their rows, or the blocks where there is one projection.
    layers: block, projection, rows, value, one per line. kind: `score` (mean score of its rows), `share` (of its rows
    that the mask of `name` removes) or `difference` (mean percentile under `name` minus that under `other`, in points,
    whose mean over all rows is 0)."""
    known, value, rows = layers.filter(pl.col("value").is_finite()), pl.col("value"), pl.col("rows")
    if known.is_empty():
        return f"{name}: no value is finite"
    by = "projection" if known["projection"].n_unique() > 1 else "block"
    means = known.group_by(by, maintain_order=True).agg((value * rows).sum() / rows.sum())
    ends = means.sort("value", descending=True, maintain_order=True).rows()
    (high, most), (low, least) = ends[0], ends[-1]
    top, bottom = (matrix.plain(one, " rows") if by == "projection" else f"rows of block {one}" for one in (high, low))
    if most == least:
        return f"{name}: all {by}s alike on average"
    if kind == "score":
        return f"{name} scores the {top} highest on average, the {bottom} lowest"
    if kind == "share":
        return f"{name} removes {most:.0%} of the {top} and {least:.0%} of the {bottom}"
    up, down = f"{most:.0f}", f"{abs(least):.0f}"
    return f"{name} ranks the {top} higher than {other} does, by {up} points, the {bottom} lower, by {down}"


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
    """Which selectors are at the ends of `early_to_late`."""
    early, _, late = early_to_late(masks)
    parts = [
        f"{words.titles(names)} {words.verb(names, 'spares', 'spare')} {where}"
        for names, where in ((early, "late blocks"), (late, "early ones" if early else "early blocks")) if names
    ]  # fmt: skip
    return "; ".join(parts) or "No mask removes twice as much of early blocks as of late ones, or the reverse"


def early_to_late(masks: pl.DataFrame) -> list[list[str]]:
    """The selectors whose masks take at least twice as large a share of the first third of the blocks as of the last,
    those in between, and those of the reverse; in each the one with most of early blocks first.
    masks: selector, block, share of its rows that are removed, of one rate."""
    block, last = pl.col("block"), pl.col("block").max()
    thirds = [pl.col("share").filter(one).mean() for one in (block < last / 3, block > last * 2 / 3)]
    ends = masks.group_by("selector", maintain_order=True).agg(first=thirds[0], rest=thirds[1]).fill_null(0.0)
    first, rest = pl.col("first"), pl.col("rest")
    order = ends.sort(((first - rest) / (first + rest)).fill_nan(0.0), descending=True, maintain_order=True)
    early, late = (first >= 2 * rest) & (first > rest), (rest >= 2 * first) & (rest > first)
    return [order.filter(group)["selector"].to_list() for group in (early, ~(early | late), late)]
