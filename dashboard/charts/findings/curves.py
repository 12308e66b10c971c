"""Findings of perplexity curves: who keeps the language, whose gap is large, who leads over models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import polars as pl

from dashboard.charts import formats, palette, series
from dashboard.charts.findings import groups, words
from dashboard.charts.findings.groups import Value
from engine.stats.limits import BASELINE, Thresholds

RATE = Thresholds().rate
_EACH = 4  # selectors of whom each one's number is said
NOTHING_APART = "No difference beyond the errors"


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
            there = part.filter((pl.col("rate") - smaller).abs() < 1e-9).with_columns(error=series.whole_error())
            if set(there.filter("destroyed")["selector"]) == gone:
                rate, rows = smaller, there
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
        return f"{every or words.titles(destroyed)} {verb} the model {when}; {_alive(alive, order, '', shift)}"
    said = _alive(alive, order, f" {when}", shift)
    who = f"{len(destroyed)} more" if len(destroyed) > 2 and "the other" in said else _rest(destroyed)
    return said + (f"; {who} {verb} the model" if destroyed else "")


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
    found = groups.split(values)
    least, most = found.low[0], (found.high or found.low)[-1]
    if not found.high:
        if groups.any_apart(values) and len(values) <= _EACH:
            ordered = sorted(values, key=lambda value: value.value)
            told = words.listed([f"{palette.title(one.name)} {formats.perplexity(one.value)}{of}" for one in ordered])
            return f"Perplexity{when}: {told}"
        if groups.any_apart(values):
            return (
                f"Perplexity runs from {formats.perplexity(least.value)} ({palette.title(least.name)}) to "
                f"{formats.perplexity(most.value)}{of} ({palette.title(most.name)}){when}"
            )
        reach = f"{formats.perplexity(least.value)} to {formats.perplexity(most.value)}{of}"
        return f"{NOTHING_APART}{when}: perplexity {reach}"
    low, high = ([value.name for value in group] for group in (found.low, found.high))
    under, over = words.above(found.low[-1].value), words.below(found.high[0].value)
    if order == "lerf":
        return (
            f"{words.titles(low)} {words.verb(low, 'keeps', 'keep')} perplexity below {under}{of}{when}; "
            f"{_rest(high)} {words.verb(high, 'goes', 'go')} above {over}"
        )
    return (
        f"{words.titles(high)} {words.verb(high, 'drives', 'drive')} perplexity above {over}{of}{when}; "
        f"{_rest(low)} {words.verb(low, 'stays', 'stay')} below {under}"
    )


def _rest(names: Sequence[str]) -> str:
    if len(names) <= 2:
        return words.titles(names)
    others = f"the other {len(names) - (BASELINE in names)}"
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
    far = groups.limit(len(values)) if groups.known(values) else 0.0
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
    """`; 1 of 3 random rankings destroys the model at 0.25%`: where the mean over seeds says little; "" elsewhere.
    limit: NLL above which the model is destroyed, None where that is not known."""
    seeded = frame.filter(model=model, order=order, selector=BASELINE)
    for (rate,), cells in seeded.sort("rate").group_by("rate", maintain_order=True) if limit is not None else ():
        destroyed = int((cells["nll"] > limit).sum())
        if 0 < destroyed < cells.height:
            verb = words.verb(["one"] * destroyed, "destroys", "destroy")
            return f"; {destroyed} of {cells.height} random rankings {verb} the model at {formats.rate(rate)}"
    return ""
