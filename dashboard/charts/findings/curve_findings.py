"""Findings of curves: who keeps the language, whose gap is large, who leads over models, who is still above chance on a
task. Values with errors are in two groups where the errors leave a gap between them."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist
from typing import NamedTuple

import polars as pl

from dashboard.charts import formats, palette, series
from dashboard.charts.findings import finding_words as words
from engine.stats.limits import BASELINE, Thresholds

RATE = Thresholds().rate
_FEW = 4  # that leave a model, all of them named
BARELY = 0.01  # of all questions: who clears chance by less
LEVEL = 0.05  # of any false difference among all pairs (Bonferroni)
NOTHING_APART = "No difference beyond the errors"


class Value(NamedTuple):
    """A selector's value with its standard error, None where it is not known."""

    name: str
    value: float
    error: float | None = None


class Groups(NamedTuple):
    """The two groups, each from its least value up. `high` is empty where the errors leave no difference."""

    low: list[Value]
    high: list[Value]


def known(values: Sequence[Value]) -> bool:
    """Has every value an error?"""
    return all(value.error is not None and math.isfinite(value.error) for value in values)


def limit_of(count: int) -> float:
    """Standard errors that a difference needs to be beyond them, with so many values compared in pairs: the two-sided
    normal quantile at `LEVEL` over the number of pairs.

    The errors of two values are taken as independent. Of masks on the same windows they are alike, so that less is
    called a difference than paired errors would; those are in the table `differences`."""
    pairs = max(1, math.comb(count, 2))
    return NormalDist().inv_cdf(1 - LEVEL / (2 * pairs))


def split(values: Sequence[Value]) -> Groups:
    """At the widest gap between neighbours that every pair across it is beyond its errors at; finite values only.
    Without errors, at the widest gap as it was measured; values that are all alike are one group."""
    ordered = sorted(values, key=lambda value: value.value)
    errors = known(ordered)
    far = limit_of(len(ordered))

    def apart(low: Value, high: Value) -> bool:
        need = far * math.hypot(low.error or 0.0, high.error or 0.0) if errors else 0.0
        return high.value - low.value > need

    best, widest = len(ordered), 0.0
    for place in range(1, len(ordered)):
        gap = ordered[place].value - ordered[place - 1].value
        if gap > widest and all(apart(low, high) for low in ordered[:place] for high in ordered[place:]):
            best, widest = place, gap
    return Groups(ordered[:best], ordered[best:])


def any_apart(values: Sequence[Value]) -> bool:
    """Is any pair beyond its errors? (Where there are none: are any two values not the same?)"""
    far = limit_of(len(values)) if known(values) else 0.0
    return any(
        abs(one.value - other.value) > far * math.hypot(one.error or 0.0, other.error or 0.0)
        for one, other in combinations(values, 2)
    )


def curve(points: pl.DataFrame, order: str, *, shift: float | None = 0.0, wanted: float = RATE) -> str:
    """One order of `series.points` at the rate nearest to `wanted` that every drawn selector has, and at which not all
    of them destroy the model.

    shift: what the figure takes from every NLL: the unmasked model's where it divides by it, None where that is not
    known and nothing is drawn."""
    part = points.filter(pl.col("order") == order)
    if part.is_empty() or shift is None:
        return "Nothing is drawn"
    alive = part.filter(~pl.col("destroyed"))["rate"].unique()
    part = part.filter(pl.col("rate").is_in(alive.implode())) if alive.len() else part
    counts = part.group_by("rate").len()
    shared = counts.filter(pl.col("len") == part["selector"].n_unique())["rate"].to_list()
    rate = words.nearest(shared or part["rate"].to_list(), wanted)
    if rate is None:
        rate = float(part["rate"][0])
    rows = part.filter((pl.col("rate") - rate).abs() < 1e-9).with_columns(error=series.whole_error())
    if order == "morf":  # the first rate at which these destroy the model says most
        gone = set(rows.filter("destroyed")["selector"])
        for smaller in sorted(one for one in shared if 0 < one < rate) if gone else ():
            at_smaller = part.filter((pl.col("rate") - smaller).abs() < 1e-9).with_columns(error=series.whole_error())
            if set(at_smaller.filter("destroyed")["selector"]) == gone:
                rate, rows = smaller, at_smaller
                break
    return harm(rows, order, f"with {formats.rate(rate)} removed", shift)


def harm(rows: pl.DataFrame, order: str, when: str, shift: float = 0.0) -> str:
    """Who keeps perplexity low under LeRF, who drives it up under MoRF, who destroys the model: of these no more is
    said. rows: one line per selector with columns selector, nll and error (nats, null where it is not known),
    destroyed."""
    destroyed = rows.filter("destroyed")["selector"].to_list()
    if destroyed and len(destroyed) == rows.height:
        return f"Every selector's mask destroys the model {when}"
    alive = rows.filter(~pl.col("destroyed"))
    verb = words.verb(destroyed, "destroys", "destroy")
    if destroyed and order == "morf":  # what a good selector does comes first
        scores = set(rows["selector"]) - {BASELINE}
        every = f"All {len(scores)} scores" if scores == set(destroyed) and len(scores) > 2 else ""
        survivors = _alive(alive, order, "", shift).replace(f"{palette.title(BASELINE)}: ", "random rows leave ")
        return f"{every or words.titles(destroyed)} {verb} the model {when}; {survivors}"
    if len(destroyed) > 2 and order == "lerf" and alive.height <= _FEW and alive["nll"].is_finite().all():
        alive = alive.sort("nll", maintain_order=True)
        ends = list(dict.fromkeys(formats.perplexity(alive["nll"][place] - shift) for place in (0, -1)))
        who = words.listed(list(map(palette.title, alive["selector"])))
        of = "" if shift == 0.0 else " times the unmasked model's"
        leave = words.verb(alive["selector"].to_list(), "leaves", "leave")
        return f"Only {who} {leave} the model undestroyed {when}: perplexity {' to '.join(ends)}{of}"
    sentence = _alive(alive, order, f" {when}", shift)
    who = f"{len(destroyed)} more" if len(destroyed) > 2 and "the other" in sentence else _rest(destroyed, "{} scores")
    return sentence + (f"; {who} {verb} the model" if destroyed else "")


def _alive(rows: pl.DataFrame, order: str, when: str, shift: float) -> str:
    """Of the selectors that leave a model; when: with its space in front."""
    of = "" if shift == 0.0 else " times the unmasked model's"
    values = [
        Value(name, nll - shift, error)
        for name, nll, error in rows.select("selector", "nll", "error").iter_rows()
        if nll is not None and math.isfinite(nll)
    ]
    drawn = {value.name for value in values}
    lost = [name for name in rows["selector"] if name not in drawn]
    tail = f"; not finite: {words.titles(lost)}" if lost else ""
    if not values:
        return f"No perplexity{when} is finite"
    return _grouped(values, order, when, of) + tail


def _grouped(values: list[Value], order: str, when: str, of: str) -> str:
    if len(values) == 1:
        return f"{palette.title(values[0].name)}: perplexity {formats.perplexity(values[0].value)}{of}{when}"
    groups = split(values)
    least, most = groups.low[0], (groups.high or groups.low)[-1]
    if not groups.high:
        if any_apart(values):
            return (
                f"Perplexity runs from {formats.perplexity(least.value)} ({palette.title(least.name)}) to "
                f"{formats.perplexity(most.value)}{of} ({palette.title(most.name)}){when}"
            )
        reach = f"{formats.perplexity(least.value)} to {formats.perplexity(most.value)}{of}"
        return f"{NOTHING_APART}{when}: perplexity {reach}"
    low, high = ([value.name for value in group] for group in (groups.low, groups.high))
    under, over = words.bound(groups.low[-1].value, up=True), words.bound(groups.high[0].value, up=False)
    if order == "lerf":
        return (
            f"{words.titles(low)} {words.verb(low, 'keeps', 'keep')} perplexity below {under}{of}{when}; "
            f"{_rest(high)} {words.verb(high, 'goes', 'go')} above {over}"
        )
    return (
        f"{words.titles(high)} {words.verb(high, 'drives', 'drive')} perplexity above {over}{of}{when}; "
        f"{_rest(low)} {words.verb(low, 'stays', 'stay')} below {under}"
    )


def _rest(names: Sequence[str], many: str = "the other {}") -> str:
    if len(names) <= 2:
        return words.titles(names)
    others = many.format(len(names) - (BASELINE in names))
    return f"{others} and {palette.title(BASELINE)}" if BASELINE in names else others


def gap(gap_rows: pl.DataFrame, wanted: float = RATE) -> str:
    """`series.gaps` at the rate nearest to `wanted`: the largest gap, and rankings that stand on their heads beyond
    their errors (as measured, where there are none; Random's gap is chance). A loss counts up to where the model is
    destroyed."""
    gap_rows = gap_rows.filter(pl.col("counted_gap").is_finite())
    rate = words.nearest(gap_rows["rate"].to_list(), wanted)
    rows = gap_rows.filter((pl.col("rate") - (rate or 0.0)).abs() < 1e-9)
    if rate is None or rows.is_empty():
        return "No gap is known"
    when = f"with {formats.rate(rate)} removed"
    values = [Value(*line) for line in rows.select("selector", "counted_gap", "error").iter_rows()]
    far = limit_of(len(values)) if known(values) else 0.0
    best = max(values, key=lambda value: value.value)
    inverted = [one.name for one in values if one.name != BASELINE and one.value < -far * (one.error or 0.0)]
    if best.value <= far * (best.error or 0.0):
        first = f"No gap is above 0{' beyond its error' if far else ''} {when}"
    else:
        first = f"{palette.title(best.name)} has the largest gap {when}, {best.value:.2f} nats"
    return first + (f"; {words.titles(inverted)} {words.verb(inverted, 'is', 'are')} inverted" if inverted else "")


def over_models(panels: Sequence[pl.DataFrame], order: str, wanted: float = RATE) -> str:
    """In how many models a selector does the least harm (LeRF) or the most (MoRF), as measured; `series.points` each.
    Models with two selectors or more at the rate nearest to `wanted` that are not all destroyed there count, and of
    these such as have the leaders. Destroyed models are level with each other."""
    rates = [rate for points in panels for rate in points.filter(pl.col("order") == order)["rate"].to_list()]
    rate = words.nearest(rates, wanted)
    leaders: Counter[str] = Counter()
    measured: list[set[str]] = []
    for points in panels:
        here = points.filter(pl.col("order") == order, (pl.col("rate") - (rate or 0.0)).abs() < 1e-9)
        finite = here.filter(pl.col("nll").is_finite())
        if rate is None or finite.height < 2 or finite["destroyed"].all():
            continue
        measured.append(set(finite["selector"]))
        end = finite["counted"].min() if order == "lerf" else finite["counted"].max()
        leaders.update(finite.filter(pl.col("counted") == end)["selector"].to_list())
    word = "lowest" if order == "lerf" else "highest"
    if not leaders or rate is None:
        return "No model has two selectors to compare"
    most = max(leaders.values())
    names = [name for name, count in leaders.items() if count == most]
    models = sum(set(names) <= of_model for of_model in measured)
    each = " each" if len(names) > 1 else ""
    return (
        f"{words.titles(names)} {words.verb(names, 'is', 'are')} {word} in {most} of {models} "
        f"model{'s' if models > 1 else ''}{each} with {formats.rate(rate)} removed"
    )


def differences(told_apart: int, pairs: int, rate: float) -> str:
    """Pairs of selectors that their paired errors tell apart."""
    if not pairs:
        return f"No two selectors were compared at {formats.rate(rate)}"
    if not told_apart:
        return f"{NOTHING_APART} between any two selectors with {formats.rate(rate)} removed"
    return f"{told_apart} of {pairs} pairs of selectors differ beyond the errors with {formats.rate(rate)} removed"


def seeds_apart(frame: pl.DataFrame, model: str, order: str, limit: float | None) -> str:
    """`, 1 of 3 fatal at 0.25%`, of random: where their mean says little; "" elsewhere.
    limit: NLL above which the model is destroyed, None where that is not known."""
    seeded = frame.filter(model=model, order=order, selector=BASELINE)
    for (rate,), cells in seeded.sort("rate").group_by("rate", maintain_order=True) if limit is not None else ():
        destroyed = int((cells["nll"] > limit).sum())
        if 0 < destroyed < cells.height:
            return f", {destroyed} of {cells.height} fatal at {formats.rate(rate)}"
    return ""


def accuracy(points: pl.DataFrame, heading: str, wanted: float = RATE) -> str:
    """At the rate nearest to `wanted` that every selector has. points: selector, rate, accuracy, error, item_error,
    seeds, chance. Who is `above_chance` with what is left; without chance levels, as published, the selector that keeps
    most of the unmasked model's accuracy."""
    rate, rows = rate_told(points, wanted)
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
    over = over.sort("accuracy", descending=True, maintain_order=True)
    best, margins = over["selector"].to_list(), over["accuracy"] - over["need"].fill_null(0.0) - over["chance"]
    barely = [beyond and margin < BARELY for margin in margins]
    who = words.listed([palette.title(name) + " (barely)" * bool(by) for name, by in zip(best, barely, strict=True)])
    rest = rows.filter(~pl.col("selector").is_in(best))["selector"].to_list()
    others = words.titles(rest) if len(rest) <= 2 else "the others"
    others = f"{others} could be guessing" if beyond else f"{_rest(rest)} {words.verb(rest, 'does', 'do')} not"
    return f"{heading}: {who} {words.verb(best, 'stays', 'stay')} above chance {when}; {others}"


def above_chance(points: pl.DataFrame, wanted: float = RATE) -> pl.DataFrame:
    """The points there of selectors above chance: by more standard errors than the one-sided normal quantile at
    `LEVEL` over the selectors (Bonferroni)."""
    return cleared(points, wanted).filter(pl.col("accuracy") - pl.col("need").fill_null(0.0) > pl.col("chance"))


def cleared(points: pl.DataFrame, wanted: float = RATE) -> pl.DataFrame:
    """The points there with `need`: by how much each must be above chance, null where an error is not known."""
    rows = _with_errors(rate_told(points, wanted)[1])
    far = NormalDist().inv_cdf(1 - LEVEL / rows.height) if rows.height and rows["error"].null_count() == 0 else None
    return rows.with_columns(need=pl.col("error") * far)


def rate_told(points: pl.DataFrame, wanted: float = RATE) -> tuple[float | None, pl.DataFrame]:
    """The rate of which `accuracy` tells, and its points that are finite."""
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
    sentence = f"{palette.title(best['selector'])} keeps most {when}, {best['accuracy']:.1%}"
    whole = points.filter(pl.col("rate") == 0)["accuracy"].mean()
    return f"{sentence} of {whole:.1%} unmasked" if isinstance(whole, float) else sentence
