"""Findings of refusal edits: refused before and after, with Wilson's intervals where the table has them."""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.refusal_values import RateChange, first_choice, rates, strength, strongest_first, unedited
from engine.stats.limits import BASELINE

Row = dict[str, Any]
Rate = tuple[float | None, float | None, float | None]
NO_DIFFERENCE = "no difference beyond the errors"


def grid(drawn: pl.DataFrame, kept: pl.DataFrame, *, searched: bool) -> str:
    """The edit to open first, the operating point that refuses most: rates before and after on the same prompts.
    drawn: `refusal_values.cells` that are shown; kept: with the unedited model's. searched: on the prompts that points
    were chosen on."""
    prompts = "calibration risk prompts" if searched else "risk prompts"
    best = drawn.row(by_predicate=pl.col("id") == first_choice(drawn), named=True)
    before = unedited(kept, best["selector"], best["domain"])
    what = "edit" if best["point"] else "strongest edit, no operating point,"
    name = f"{palette.title(best['selector'])}'s {what} ({best['domain']}, {strength(best)})"
    after = rates(best, "malign")
    if before is None or before["malign"] is None:
        return f"{name} refuses {_shown(after)} of {prompts}, {_shown(rates(best, 'benign'))} of harmless ones"
    old = rates(before, "malign")
    if same(old, after):
        return f"{prompts.capitalize()} refused, {NO_DIFFERENCE}: {_shown(old)} before, {_shown(after)} after {name}"
    return (
        f"{prompts.capitalize()} refused: {_shown(old)} before, {_shown(after)} after {name}; harmless ones "
        f"{_shown(rates(before, 'benign'))} and {_shown(rates(best, 'benign'))}"
    )


def installed(points: pl.DataFrame, kind: str) -> tuple[str, str]:
    """The selector whose edits refuse most risk prompts, in the mean of the domains: before, after, and under random
    rows of the same layers; and of which prompts and edits that is told.

    points: `refusal_edits.measured` rows of `operating_points`; kind: `malign` or `benign`."""
    own = points.filter(selector=strongest_first(points)[0])
    names = {f"unedited_{kind}": "before", f"edited_{kind}": f"after {palette.title(own['selector'][0])}'s edits"}
    names[f"control_{kind}"] = "after random rows of the same layers"
    told = [
        f"{sum(own[column]) / own.height:.0%} {name}" for column, name in names.items()
        if column in own.columns and own[column].null_count() == 0
    ]  # fmt: skip
    held_out = ["held-out prompts"] * ("heldout" in own.columns and bool(own["heldout"].all()))
    where = own["domain"][0] if own.height == 1 else f"means of {own.height} domains"
    alike = all(same(rates(row, f"unedited_{kind}"), rates(row, f"edited_{kind}")) for row in own.iter_rows(named=True))
    before_and_after = f", before and after {NO_DIFFERENCE}" if alike else ""
    shares = sorted({formats.rate(k): k for k in own["k"].sort()}.items(), key=lambda one: one[1])
    rows = " to ".join(dict.fromkeys((shares[0][0], shares[-1][0])))
    sentence = f"{'Risk' if kind == 'malign' else 'Harmless'} prompts refused: {', '.join(told)}{before_and_after}"
    return sentence, "; ".join([*held_out, where, f"{rows} of the rows zeroed"])


def same(before: Rate, after: Rate) -> bool:
    """Do the two intervals overlap? False where one is not known. (Stricter than a test of the difference.)"""
    (_, low_a, high_a), (_, low_b, high_b) = before, after
    if low_a is None or high_a is None or low_b is None or high_b is None:
        return False
    return low_a <= high_b and low_b <= high_a


def changes(sets: Sequence[RateChange]) -> str:
    """Held-out prompts where there are some, else the first set: risk prompts, then harmless ones."""
    known = [one for one in sets if one.before[0] is not None and one.after[0] is not None]
    if not known:
        return "What is refused before and after is not known for one set of prompts"
    name = next((one.prompts for one in known if one.prompts.startswith("held-out")), known[0].prompts)
    told = [
        f"{'risk' if one.malign else 'harmless'} ones {_change(one)}"
        for one in sorted(known, key=lambda one: not one.malign)
        if one.prompts == name
    ]
    return f"Refused, {name}: {'; '.join(told[:2])}"


def _change(one: RateChange) -> str:
    shown = f"{_shown(one.before)} before, {_shown(one.after)} after"
    return f"{shown}, {NO_DIFFERENCE}" if same(one.before, one.after) else shown


def random_masks(point: Row) -> str:
    """The edit beside random masks that were not searched, which is a comparison and no test."""
    edit, mean, most = (point.get(name) for name in ("edited_malign", "control_malign", "control_malign_max"))
    first = f"The edit refuses {edit:.0%} of risk prompts" if edit is not None else "The edit"
    if mean is None:
        return f"{first}; random rows stand beside it"
    at_most = f", {most:.0%} at most" if most is not None else ""
    return f"{first}, random rows of the same layers {mean:.0%} on average{at_most}"


def among_draws(line: Row) -> str:
    """Is the edit told apart from random draws with a grid of their own? By p after Holm."""
    rank = f"rank {line['rank']} of {line['draws'] + 1}"
    if line["p_holm"] <= 0.05:
        return f"The edit refuses more than random rows that were searched in the same way ({rank})"
    return f"No difference is seen from random rows that were searched in the same way ({rank})"


def cost(part: pl.DataFrame) -> str:
    """The dearest and the cheapest masks at the largest k that every selector has, as measured. Columns selector, k,
    nll."""
    counts = part.group_by("k").len()
    shared = counts.filter(pl.col("len") == part["selector"].n_unique())["k"]
    k = shared.max() if shared.len() else part["k"].max()
    rows = part.filter(pl.col("k") == k, pl.col("nll").is_finite()).sort("nll", maintain_order=True)
    if rows.is_empty() or not isinstance(k, float):
        return "No finite perplexity"
    least, most = rows.row(0, named=True), rows.row(-1, named=True)
    first = (
        f"At k {formats.rate(k)}, {palette.title(least['selector'])} has perplexity {formats.perplexity(least['nll'])}"
    )
    if rows.height == 1:
        return first
    return f"{first}, {palette.title(most['selector'])} {formats.perplexity(most['nll'])}"


def reversal(table: pl.DataFrame, domain: str) -> str:
    """In how many models LRP's edit refuses more than IG's on one domain, as measured."""
    wide = table.filter(domain=domain).pivot("selector", index="model", values="malign", aggregate_function="first")
    if not {"lrp", "ig"} <= set(wide.columns):
        return f"{palette.capital(domain)}: no model has an edit of both LRP and IG"
    both = wide.drop_nulls(["lrp", "ig"])
    more, fewer = (int((both[a] > both[b]).sum()) for a, b in (("lrp", "ig"), ("ig", "lrp")))
    alike = both.height - more - fewer
    tail = f", as much in {alike}" if alike else ""
    return (
        f"{palette.capital(domain)}: LRP installs more refusal than IG in {more} of {both.height} models, less in "
        f"{fewer}{tail}"
    )


def densest(table: pl.DataFrame) -> str:
    """Of `signal_density`: the contrast with the largest and the one with the smallest share of clear rows. Random,
    whose contrasts are noise, counts where it stands alone."""
    known = table.filter(pl.col("density").is_finite()).sort("density", maintain_order=True)
    known = known.filter(pl.col("selector") != BASELINE) if (known["selector"] != BASELINE).any() else known
    if known.is_empty():
        return "No share of clear rows is known"
    least, most = known.row(0, named=True), known.row(-1, named=True)
    first = f"Most rows with a clear contrast: {_contrast(most)}, {most['density']:.1%}"
    return first if known.height == 1 else f"{first}; fewest: {_contrast(least)}, {least['density']:.1%}"


def _contrast(row: Row) -> str:
    return f"{palette.title(row['selector'])} on {row['domain']}"


def gathered(table: pl.DataFrame, what: str) -> str:
    """Of one domain and part of `refusal_shares`: where a selector's top rows exceed their share of all rows most, as
    measured; without that share, where most of them lie."""
    known = table.filter(pl.col("share").is_finite())
    if known.is_empty():
        return f"{what}: no share is known"
    base = known["base_rate"].null_count() == 0
    over = pl.col("share") - pl.col("base_rate") if base else pl.col("share")
    most = known.sort(over, maintain_order=True).row(-1, named=True)
    beside = f", {most['base_rate']:.0%} of all rows" if base else ""
    return f"{what}: {palette.title(most['selector'])} gathers most in {most['name']}, {most['share']:.0%}{beside}"


def shared_rows(table: pl.DataFrame, names: str) -> str:
    """Of overlaps per domain: their range, beside what random rows would share (mean)."""
    low, high, chance = table["jaccard"].min(), table["jaccard"].max(), table["expected_random"].mean()
    if not isinstance(low, float) or not isinstance(high, float):
        return f"{names}: no overlap is known"
    by_chance = f", {chance:.3f} by chance" if isinstance(chance, float) else ""
    return f"{names} share Jaccard {low:.2f} to {high:.2f} of their top rows{by_chance}"


def clusters(table: pl.DataFrame, name: str) -> str:
    """Of overlaps of domains: the pair that shares most and the pair that shares least."""
    known = table.filter(pl.col("jaccard").is_finite()).sort("jaccard", maintain_order=True)
    if known.is_empty():
        return f"{name}: no overlap of domains is known"
    least, most = known.row(0, named=True), known.row(-1, named=True)
    first = f"{name}: {most['domain_a']} and {most['domain_b']} share most, Jaccard {most['jaccard']:.2f}"
    if known.height == 1:
        return first
    return f"{first}; {least['domain_a']} and {least['domain_b']} least, {least['jaccard']:.2f}"


def composed(part: pl.DataFrame, kind: str) -> str:
    """One selector's masks of several domains: the range of refusal over the domains, and the unedited model's."""
    sentences = []
    edits = part.filter(pl.col("mask_domain").str.contains("+", literal=True))
    for name, rows in (("a mask of several domains", edits), ("the unedited model", part.filter(mask_domain="none"))):
        low, high = rows[kind].min(), rows[kind].max()
        if isinstance(low, float) and isinstance(high, float):
            sentences.append(f"{low:.0%} to {high:.0%} with {name}" if low != high else f"{low:.0%} with {name}")
    prompts = "Risk" if kind == "malign" else "Harmless"
    return f"{prompts} prompts refused: {', '.join(sentences) or 'not known'}"


def ways(rows: pl.DataFrame, title: Callable[[Row], str], domain: str) -> str:
    """Of `refusal_baselines.final`: the way that refuses most risk prompts, and how many others it is not told from."""
    known = [
        row for row in rows.iter_rows(named=True) if row["edited_malign"] is not None and row["setting"] is not None
    ]
    if not known:
        return f"{palette.capital(domain)}: no way has a setting within the limits"
    best = max(known, key=lambda row: row["edited_malign"])
    after = rates(best, "edited_malign")
    near = [row for row in known if row is not best and same(after, rates(row, "edited_malign"))]
    first = f"{palette.capital(domain)}: {title(best)} refuses most risk prompts, {_shown(after)}"
    others = f"; {NO_DIFFERENCE} from {len(near)} other way{'s' if len(near) > 1 else ''}" if near else ""
    return first + others


def _shown(rate: Rate) -> str:
    return "an unknown share" if rate[0] is None else f"{rate[0]:.0%}"
