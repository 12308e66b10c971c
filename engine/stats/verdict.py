"""A verdict per selector in plain words, from stated thresholds. Reads tables of one model."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from engine.records.errors import InputError
from engine.results.tables import frame

BASELINE = "random"
NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Thresholds:
    """What the verdicts rest on. All can be changed; the tables are measured once.

    Damage is the NLL that LeRF adds to the unmasked model's, as a fraction of what random removal adds at the
    same rate: 0 is no harm, 1 as bad as chance. It compares across models and has no unit.
    """

    rate: float = 0.3  # where LeRF is compared with random: the paper's reference rate
    faithful_damage: float = 0.5  # at most half of chance's damage; parts all attributions in the paper's tables
    invalid_damage: float = 0.8  # more than this is close to chance
    log_gap: float = 1.0  # nats per token: MoRF's perplexity at least e times LeRF's
    stderrs: float = 2.0  # standard errors that a difference must have
    spearman: float = 0.95  # of the scores from half the calibration text with those from all of it
    jaccard: float = 0.8  # of the LeRF masks at `rate`, likewise; chance gives about 0.18 at 30%


class Finding(NamedTuple):
    """A verdict's word, the number(s) it rests on, and why, in words."""

    word: str
    numbers: tuple[float | None, ...]
    reasons: tuple[str, ...]


def judge_selectors(
    gap: pl.DataFrame,
    differences: pl.DataFrame,
    dense_nll: float,
    stability: pl.DataFrame | None = None,
    *,
    data_free: Collection[str] = ("random", "magnitude"),
    thresholds: Thresholds | None = None,
) -> pl.DataFrame:
    """One verdict per selector, from the tables of one model.

    validity, at the reference rate and with every seed of a seeded selector:
    `not`       LeRF is not below every random ranking by enough standard errors, or its damage is close to
                chance, or the log gap is not above zero by enough nats and standard errors;
    `faithful`  damage is small and the log gap is large enough at every rate of the table;
    `partly`    anything else.
    stability: `stable` if scores and masks from half the calibration windows are like those from all of them
    (without half: the largest smaller set), else `not`; `unknown` without a measurement; `not applicable`
    to selectors that see no text. Stable but invalid: `stable` and validity `not`.

    gap, differences, stability: tables of that name; dense_nll: nats per token of the unmasked model
    data_free: selectors that see no text. Numbers of seeded selectors are means over seeds.
    Errors: InputError where random or the reference rate is not in the tables.
    """
    limits = thresholds or Thresholds()
    rates = sorted(set(gap["rate"].to_list()))
    if limits.rate not in rates:
        raise InputError(
            f"verdicts compare at rate {limits.rate:g}, the validity gap was measured at "
            f"{', '.join(f'{rate:g}' for rate in rates)}; choose one of these"
        )
    if gap.filter(selector=BASELINE).is_empty():
        raise InputError("verdicts compare every selector with random; add random to --selectors")
    lines = []
    for selector in gap["selector"].unique(maintain_order=True):
        own = gap.filter(selector=selector)
        validity = _validity(selector, gap, differences, dense_nll, limits)
        stable = _stability(selector, stability, data_free, limits)
        named = stable.word == "stable" and validity.word == "not"
        reasons = [*validity.reasons, *stable.reasons]
        if named:
            reasons.insert(0, "stable but invalid: the ranking is reproducible and does not find what matters")
        text = "; ".join(reasons)
        words = (validity.word, stable.word, named)
        numbers = (*validity.numbers, *stable.numbers)
        lines.append((own["model"][0], selector, *words, *numbers, f"{text[0].upper()}{text[1:]}."))
    return frame("verdicts", lines)


def against_half(stability: pl.DataFrame) -> pl.DataFrame:
    """The line per selector that its stability goes by: half the windows against all, else the largest smaller set."""
    smaller = stability.filter(pl.col("size") < pl.col("reference_size"))
    is_half = 2 * pl.col("size") == pl.col("reference_size")
    return smaller.sort(is_half, "size", maintain_order=True).unique("selector", keep="last", maintain_order=True)


def _validity(
    selector: str, gap: pl.DataFrame, differences: pl.DataFrame, dense_nll: float, limits: Thresholds
) -> Finding:
    """Numbers: log gap, LeRF NLL, random's LeRF NLL, dense NLL, damage; all at the reference rate."""
    own = gap.filter(selector=selector)
    here = own.filter(rate=limits.rate)
    lerf = statistics.fmean(here["nll_lerf"])
    chance = statistics.fmean(gap.filter(selector=BASELINE, rate=limits.rate)["nll_lerf"])
    log_gap = statistics.fmean(here["log_gap"])
    damage = (lerf - dense_nll) / (chance - dense_nll) if chance > dense_nll else None
    numbers = (log_gap, lerf, chance, dense_nll, damage)
    at = f"at {limits.rate:.0%}"
    if selector == BASELINE:
        return Finding("not", numbers, ("it is the baseline that the others are compared with",))

    against, failing = [], []
    if not _below_random(selector, differences, limits):
        against.append(
            f"LeRF {at} is not below every random ranking by {limits.stderrs:g} standard errors "
            f"({lerf:.3g} against {chance:.3g} nats per token)"
        )
    if damage is None:
        against.append(f"random removal does no damage {at}, so nothing can be told from LeRF")
    elif damage > limits.invalid_damage:
        against.append(f"LeRF {at} does {damage:.1%} of the damage of random removal, close to chance")
    for rate in sorted(set(own["rate"].to_list())):
        part = own.filter(rate=rate)
        pairs = part.select("log_gap", "stderr").rows()
        if not all(_clear_gap(found, stderr, limits) for found, stderr in pairs):
            failing.append(f"{statistics.fmean(part['log_gap']):+.2g} at {rate:.0%}")
            if rate == limits.rate:
                against.append(
                    f"the log gap {at} is not clearly above zero ({log_gap:+.3g} nats, "
                    f"asked for at least {limits.log_gap:g} and {limits.stderrs:g} standard errors)"
                )
    if against:
        return Finding("not", numbers, tuple(against))

    assert damage is not None
    small = damage <= limits.faithful_damage
    found = (
        f"LeRF {at} is below every random ranking ({lerf:.3g} against {chance:.3g} nats per token)",
        f"it does {damage:.1%} of the damage of random removal"
        + ("" if small else f", more than {limits.faithful_damage:.0%}"),
        f"the log gap {at} is {log_gap:+.3g} nats, "
        + (f"too small at some rates ({', '.join(failing)})" if failing else "and large enough at every rate"),
    )
    return Finding("faithful" if small and not failing else "partly", numbers, found)


def _below_random(selector: str, differences: pl.DataFrame, limits: Thresholds) -> bool:
    """Whether every LeRF mask of the selector has a lower NLL than every random one, by enough standard errors."""
    pairs = differences.filter(pl.col("kind") == "lerf", pl.col("rate") == limits.rate)
    first = pairs.filter(selector_a=selector, selector_b=BASELINE).select("difference", "stderr").rows()
    second = pairs.filter(selector_a=BASELINE, selector_b=selector).select(-pl.col("difference"), "stderr").rows()
    if not first + second:
        raise InputError(
            f"the table of differences does not compare {selector} with random at rate {limits.rate:g}; "
            "run the analysis `differences` again"
        )
    return all(
        stderr is not None and difference < 0 and -difference >= limits.stderrs * stderr
        for difference, stderr in first + second
    )


def _clear_gap(log_gap: float, stderr: float | None, limits: Thresholds) -> bool:
    return stderr is not None and log_gap >= limits.log_gap and log_gap >= limits.stderrs * stderr


def _stability(
    selector: str, stability: pl.DataFrame | None, data_free: Collection[str], limits: Thresholds
) -> Finding:
    """Numbers: Spearman and Jaccard between the scores of half the windows and those of all of them."""
    if selector in data_free:
        return Finding(NOT_APPLICABLE, (None, None), ("it sees no text, so its stability is not applicable",))
    own = None
    if stability is not None:
        own = against_half(stability.filter(selector=selector, rate=limits.rate))
    if own is None or own.is_empty():
        return Finding("unknown", (None, None), ("stability was not measured",))
    line = own.row(0, named=True)
    rho, overlap = line["spearman"], line["jaccard"]
    if rho is None or overlap is None:
        return Finding("unknown", (rho, overlap), ("stability is not defined for these scores",))
    stable = rho >= limits.spearman and overlap >= limits.jaccard
    found = (
        f"from {line['size']} instead of {line['reference_size']} windows its scores have Spearman {rho:.4f} and its "
        f"masks at {limits.rate:.0%} Jaccard {overlap:.3f} (asked for {limits.spearman:g} and {limits.jaccard:g})"
    )
    return Finding("stable" if stable else "not", (rho, overlap), (found,))
