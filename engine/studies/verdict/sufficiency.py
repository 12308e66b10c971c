"""Sufficient: what a selector calls unimportant can go. LeRF, gap and damage against random."""

import math
import statistics
from typing import NamedTuple

import polars as pl

from engine.records.errors import InputError
from engine.stats.limits import BASELINE, Thresholds, clear
from engine.stats.table_estimates import between_draws, each_line
from engine.stats.uncertainty import Estimate
from engine.studies.verdict.finding import Finding

SUFFICIENT = "sufficient"


class Numbers(NamedTuple):
    """At the reference rate, means over seeds: NLL in nats per token, damage as `Thresholds` defines it."""

    log_gap: float
    lerf_nll: float
    random_lerf_nll: float
    dense_nll: float
    damage: float | None


def sufficiency(
    gap: pl.DataFrame, differences: pl.DataFrame, dense_nll: float, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> dict[str, Finding]:
    """Per selector `not`, `partly` or `sufficient`; the rules are those of `judge_selectors`.

    In damage and log gap a loss counts up to where the model is destroyed (`gap`'s column saturated_above; earlier
    tables have no such limit). Two masks that both destroy it are not told apart; further rates at which both orders
    do are left out."""
    ceiling = pl.col("saturated_above") if "saturated_above" in gap.columns else pl.lit(math.inf)
    morf, lerf = (pl.min_horizontal(name, ceiling) for name in ("nll_morf", "nll_lerf"))
    gap = gap.with_columns(ceiling=ceiling, counted_gap=morf - lerf).filter(
        (pl.col("rate") == limits.rate) | (pl.min_horizontal("nll_lerf", "nll_morf") <= pl.col("ceiling"))
    )
    selectors = gap["selector"].unique(maintain_order=True).to_list()
    judged = [name for name in selectors if name != BASELINE]
    below_random = clear(
        {name: _against_random(name, differences, draw_sweep, limits) for name in judged}, -1, limits.level
    )
    rates = sorted(set(gap["rate"].to_list()))
    above_zero = {rate: clear(_gaps(gap, rate, judged, draw_sweep), 1, limits.level) for rate in rates}
    findings = {}
    for name in selectors:
        numbers, counted = _numbers(name, gap, dense_nll, limits)
        if name == BASELINE:
            findings[name] = Finding("not", numbers, ("it is the baseline that the others are compared with",))
            continue
        log_gaps = {rate: own["counted_gap"] for rate in rates if (own := gap.filter(selector=name, rate=rate)).height}
        too_small = {
            rate: statistics.fmean(values)
            for rate, values in log_gaps.items()
            if not (above_zero[rate].get(name, False) and min(values) >= limits.log_gap)  # of any seed
        }
        findings[name] = _finding(numbers, counted, below_random[name], too_small, limits)
    return findings


def _numbers(selector: str, gap: pl.DataFrame, dense_nll: float, limits: Thresholds) -> tuple[Numbers, str]:
    """With the log gap that counts, in words."""
    at_rate = gap.filter(selector=selector, rate=limits.rate)
    lerf, log_gap = statistics.fmean(at_rate["nll_lerf"]), statistics.fmean(at_rate["log_gap"])
    chance = statistics.fmean(gap.filter(selector=BASELINE, rate=limits.rate)["nll_lerf"])
    most = float(gap["ceiling"][0]) - dense_nll
    worst = min(chance - dense_nll, most)
    damage = min(lerf - dense_nll, most) / worst if worst > 0 else None
    counted = statistics.fmean(at_rate["counted_gap"])
    less = ", with losses counted up to where the model is destroyed" if abs(counted - log_gap) > 1e-9 else ""
    return Numbers(log_gap, lerf, chance, dense_nll, damage), f"{counted:+.3g} nats{less}"


def _finding(
    numbers: Numbers, counted: str, below_random: bool, too_small: dict[float, float], limits: Thresholds
) -> Finding:
    """counted: of `_numbers`; too_small: rate -> log gap, where it is not clearly above zero or not large enough."""
    _, lerf, chance, _, damage = numbers
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
    if limits.rate in too_small:
        against.append(
            f"the log gap {at} is not clearly above zero ({counted}; asked for: at least {limits.log_gap:g} and p at "
            f"most {limits.level:g} after Holm)"
        )
    if against or damage is None:
        return Finding("not", numbers, tuple(against))
    small = damage <= limits.faithful_damage
    some_rates = ", ".join(f"{value:+.2g} at {rate:.0%}" for rate, value in too_small.items())
    reasons = (
        f"LeRF {at} is below every random ranking ({lerf:.3g} against {chance:.3g} nats per token)",
        f"it does {damage:.1%} of the damage of random removal"
        + ("" if small else f", more than {limits.faithful_damage:.0%}"),
        f"the log gap {at} is {counted}, "
        + (f"too small at some rates ({some_rates})" if too_small else "and large enough at every rate"),
    )
    return Finding(SUFFICIENT if small and not too_small else "partly", numbers, reasons)


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
    if "saturated" in lines.columns and lines["saturated"].any():
        return [Estimate(0.0, None, None, None, None)]
    draws = between_draws(draw_sweep, limits.rate, (selector, "lerf"))
    return each_line(lines, "difference", draws)


def _gaps(
    gap: pl.DataFrame, rate: float, selectors: list[str], draw_sweep: pl.DataFrame | None
) -> dict[str, list[Estimate]]:
    return {
        name: each_line(
            gap.filter(selector=name, rate=rate),
            "log_gap",
            between_draws(draw_sweep, rate, (name, "morf"), (name, "lerf")),
        )
        for name in selectors
    }
