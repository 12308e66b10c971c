"""Sufficient: what a selector calls unimportant can go. LeRF, gap and damage against random."""

from __future__ import annotations

import statistics

import polars as pl

from engine.records.errors import InputError
from engine.stats.limits import BASELINE, Thresholds, clear
from engine.stats.table_estimates import between_draws, each_line
from engine.stats.uncertainty import Estimate
from engine.studies.verdict.finding import Finding

SUFFICIENT = "sufficient"


def sufficiency(
    gap: pl.DataFrame,
    differences: pl.DataFrame,
    dense_nll: float,
    draw_sweep: pl.DataFrame | None,
    limits: Thresholds,
) -> dict[str, Finding]:
    """Per selector `not`, `partly` or `sufficient`; the rules are those of `judge_selectors`.

    Numbers: log gap, LeRF NLL, random's LeRF NLL, dense NLL, damage; all at the reference rate, means over seeds.
    """
    selectors = [name for name in gap["selector"].unique(maintain_order=True) if name != BASELINE]
    below = clear(
        {name: _against_random(name, differences, draw_sweep, limits) for name in selectors}, -1, limits.level
    )
    rates = sorted(set(gap["rate"].to_list()))
    gaps = {rate: clear(_gaps(gap, rate, selectors, draw_sweep), 1, limits.level) for rate in rates}
    found = {}
    for name in gap["selector"].unique(maintain_order=True):
        numbers = _numbers(name, gap, dense_nll, limits)
        if name == BASELINE:
            found[name] = Finding("not", numbers, ("it is the baseline that the others are compared with",))
            continue
        large = {
            rate: gaps[rate].get(name, False) and min(part["log_gap"]) >= limits.log_gap  # every seed
            for rate in rates
            if (part := gap.filter(selector=name, rate=rate)).height
        }
        found[name] = _judged(name, gap, numbers, below[name], large, limits)
    return found


def _numbers(
    selector: str, gap: pl.DataFrame, dense_nll: float, limits: Thresholds
) -> tuple[float, float, float, float, float | None]:
    here = gap.filter(selector=selector, rate=limits.rate)
    lerf, log_gap = statistics.fmean(here["nll_lerf"]), statistics.fmean(here["log_gap"])
    chance = statistics.fmean(gap.filter(selector=BASELINE, rate=limits.rate)["nll_lerf"])
    damage = (lerf - dense_nll) / (chance - dense_nll) if chance > dense_nll else None
    return log_gap, lerf, chance, dense_nll, damage


def _judged(
    selector: str,
    gap: pl.DataFrame,
    numbers: tuple[float, float, float, float, float | None],
    below_random: bool,
    large: dict[float, bool],
    limits: Thresholds,
) -> Finding:
    log_gap, lerf, chance, _, damage = numbers
    at, against = f"at {limits.rate:.0%}", []
    if not below_random:
        against.append(
            f"LeRF {at} is not clearly below every random ranking ({lerf:.3g} against {chance:.3g} nats per token; "
            f"p at most {limits.level:g} after Holm is asked for)"
        )
    if damage is None:
        against.append(f"random removal does no damage {at}, so nothing can be told from LeRF")
    elif damage > limits.invalid_damage:
        against.append(f"LeRF {at} does {damage:.1%} of the damage of random removal, close to chance")
    if not large[limits.rate]:
        against.append(
            f"the log gap {at} is not clearly above zero ({log_gap:+.3g} nats, asked for at least {limits.log_gap:g} "
            f"and p at most {limits.level:g} after Holm)"
        )
    if against:
        return Finding("not", numbers, tuple(against))
    assert damage is not None
    failing = [
        f"{statistics.fmean(gap.filter(selector=selector, rate=rate)['log_gap']):+.2g} at {rate:.0%}"
        for rate, enough in large.items()
        if not enough
    ]
    small = damage <= limits.faithful_damage
    found = (
        f"LeRF {at} is below every random ranking ({lerf:.3g} against {chance:.3g} nats per token)",
        f"it does {damage:.1%} of the damage of random removal"
        + ("" if small else f", more than {limits.faithful_damage:.0%}"),
        f"the log gap {at} is {log_gap:+.3g} nats, "
        + (f"too small at some rates ({', '.join(failing)})" if failing else "and large enough at every rate"),
    )
    return Finding(SUFFICIENT if small and not failing else "partly", numbers, found)


def _against_random(
    selector: str, differences: pl.DataFrame, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> list[Estimate]:
    """Every LeRF mask of the selector against every random one: NLL of the first minus the second."""
    pairs = differences.filter(pl.col("kind") == "lerf", pl.col("rate") == limits.rate)
    first = pairs.filter(selector_a=selector, selector_b=BASELINE)
    second = pairs.filter(selector_a=BASELINE, selector_b=selector).with_columns(-pl.col("difference"))
    lines = pl.concat([first, second])
    if lines.is_empty():
        raise InputError(
            f"the table of differences does not compare {selector} with random at rate {limits.rate:g}; "
            "run the analysis `differences` again"
        )
    draws = between_draws(draw_sweep, limits.rate, (selector, "lerf"))
    return each_line(lines, "difference", draws)


def _gaps(
    gap: pl.DataFrame, rate: float, selectors: list[str], draw_sweep: pl.DataFrame | None
) -> dict[str, list[Estimate]]:
    found = {}
    for name in selectors:
        draws = between_draws(draw_sweep, rate, (name, "morf"), (name, "lerf"))
        found[name] = each_line(gap.filter(selector=name, rate=rate), "log_gap", draws)
    return found
