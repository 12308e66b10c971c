"""Specific: a selector does better than random rows of its own layers. Reads the table `specific`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from engine.stats.limits import BASELINE, Thresholds, clear
from engine.stats.table_estimates import between_draws
from engine.stats.uncertainty import Estimate, Part, estimate
from engine.studies.estimate_words import ORDER_TITLES, interval_words
from engine.studies.verdict.finding import NOT_APPLICABLE, NOT_MEASURED, Finding

SPECIFIC = "specific"


def specificity(
    selectors: Sequence[str], specific: pl.DataFrame | None, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> dict[str, Finding]:
    """Per selector `specific`, `LeRF only`, `MoRF only`, `not`, `not measured`; random is `not applicable`.

    An order passes where the selector's NLL differs from the mean of its layer-matched controls in the right direction,
    by p adjusted over the selectors. The error holds the evaluation text, one further draw of the control's rows and,
    where it was measured, the calibration text. Number: the share of the LeRF advantage that the depths explain.
    """
    orders = limits.specific_orders
    estimates: dict[str, dict[str, Estimate]] = {order: {} for order in orders}
    depth_shares: dict[str, dict[str, Any]] = {}
    at_rate = pl.DataFrame() if specific is None else specific.filter((pl.col("rate") - limits.rate).abs() < 1e-9)
    for line in at_rate.iter_rows(named=True):
        selector, order = line["selector"], line["order"]
        if order in orders and selector in selectors:
            of_draws = between_draws(draw_sweep, limits.rate, (selector, order))
            estimates[order][selector] = estimate(line["difference"], [_part(line), *of_draws])
        if order == "lerf":
            depth_shares[selector] = line
    passed = {
        order: clear({name: [one] for name, one in by_name.items()}, -1 if order == "lerf" else 1, limits.level)
        for order, by_name in estimates.items()
    }
    findings = {}
    for name in selectors:
        if name == BASELINE:
            findings[name] = Finding(NOT_APPLICABLE, (None,), ())
        elif not all(name in estimates[order] for order in orders):
            why = "whether it is more than its depths, against random rows of its own layers, was not measured"
            findings[name] = Finding(NOT_MEASURED, (None,), (why,))
        else:
            own = {order: (estimates[order][name], passed[order][name]) for order in orders}
            findings[name] = _finding(own, depth_shares.get(name), limits)
    return findings


def _finding(by_order: dict[str, tuple[Estimate, bool]], lerf: dict[str, Any] | None, limits: Thresholds) -> Finding:
    passed = [order for order, (_, passes) in by_order.items() if passes]
    word = SPECIFIC if len(passed) == len(by_order) else f"{ORDER_TITLES[passed[0]]} only" if passed else "not"
    reasons = [_sentence(order, difference, passes, limits) for order, (difference, passes) in by_order.items()]
    share = None if lerf is None else lerf["depth_share"]
    if lerf is not None and share is not None:
        depth = f"{share:.0%} ({lerf['depth_share_low']:.0%} to {lerf['depth_share_high']:.0%})"
        reasons.append(f"random rows of its layers have {depth} of its LeRF advantage over random masks")
    return Finding(word, (share,), tuple(reasons))


def _part(line: dict[str, Any]) -> Part | None:
    error, degrees = line["stderr"], line["degrees"]
    return None if error is None else Part(error * error, math.inf if degrees is None else degrees)


def _sentence(order: str, difference: Estimate, passed: bool, limits: Thresholds) -> str:
    return (
        f"under {ORDER_TITLES[order]} at {limits.rate:.0%} it does {'' if passed else 'not clearly do '}"
        f"{'less' if order == 'lerf' else 'more'} harm than random rows of its own layers "
        f"({interval_words(difference)} nats per token from them)"
    )
