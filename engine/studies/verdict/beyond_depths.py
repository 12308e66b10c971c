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
from engine.studies.verdict.removal_budgets import share_text

SPECIFIC, SATURATED = "specific", "saturated"


def specificity(
    selectors: Sequence[str], specific: pl.DataFrame | None, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> dict[str, Finding]:
    """Per selector `specific`, `LeRF only`, `MoRF only`, `not`, `saturated`, `not measured`; random `not applicable`.

    An order passes where the selector's NLL differs from the mean of its layer-matched controls in the right direction,
    by p adjusted over the selectors, at the largest rate at which these controls are not saturated (the table's; in
    tables of before there was such a rule, at the reference rate). `saturated` where there is no such rate in one of
    the orders. The error holds the evaluation text, one further draw of the control's rows and, where it was measured,
    the calibration text. Number: the share of the LeRF advantage that the depths explain.
    """
    orders = limits.specific_orders
    estimates: dict[str, dict[str, Estimate]] = {order: {} for order in orders}
    by_order: dict[str, dict[str, dict[str, Any]]] = {order: {} for order in ("lerf", "morf")}
    for line in _judged(specific, limits).iter_rows(named=True):
        selector, order = line["selector"], line["order"]
        if selector in selectors:
            by_order[order][selector] = line
            if order in orders and line["answer"] != SATURATED:
                of_draws = between_draws(draw_sweep, line["rate"], (selector, order))
                estimates[order][selector] = estimate(
                    line["difference"], [_part(line), *of_draws], looks=line.get("looks") or 1
                )
    passed = {
        order: clear({name: [one] for name, one in by_name.items()}, -1 if order == "lerf" else 1, limits.level)
        for order, by_name in estimates.items()
    }
    findings = {}
    for name in selectors:
        lines = {order: by_order[order][name] for order in orders if name in by_order[order]}
        if name == BASELINE:
            findings[name] = Finding(NOT_APPLICABLE, (None,), ())
        elif len(lines) < len(orders):
            why = "whether it is more than its depths, against random rows of its own layers, was not measured"
            findings[name] = Finding(NOT_MEASURED, (None,), (why,))
        elif any(line["answer"] == SATURATED for line in lines.values()):
            destroyed = " and ".join(ORDER_TITLES[o] for o, line in lines.items() if line["answer"] == SATURATED)
            why = f"random rows of its own layers destroy the model at every rate under {destroyed}: not judged"
            findings[name] = Finding(SATURATED, (None,), (why,))
        else:
            own = {order: (estimates[order][name], passed[order][name]) for order in orders}
            findings[name] = _finding(own, lines, by_order["lerf"].get(name))
    return findings


def _judged(specific: pl.DataFrame | None, limits: Thresholds) -> pl.DataFrame:
    """The lines that verdicts rest on."""
    if specific is None:
        return pl.DataFrame()
    if "control_nll" in specific.columns:
        return specific
    return specific.filter((pl.col("rate") - limits.rate).abs() < 1e-9)


def _finding(
    by_order: dict[str, tuple[Estimate, bool]], lines: dict[str, dict[str, Any]], lerf: dict[str, Any] | None
) -> Finding:
    passed = [order for order, (_, passes) in by_order.items() if passes]
    word = SPECIFIC if len(passed) == len(by_order) else f"{ORDER_TITLES[passed[0]]} only" if passed else "not"
    reasons = [_sentence(order, lines[order], difference, passes) for order, (difference, passes) in by_order.items()]
    share = None if lerf is None else lerf["depth_share"]
    if lerf is not None and share is not None:
        depth = f"{share:.0%} ({lerf['depth_share_low']:.0%} to {lerf['depth_share_high']:.0%})"
        reasons.append(f"random rows of its layers have {depth} of its LeRF advantage over random masks")
    return Finding(word, (share,), tuple(reasons))


def _part(line: dict[str, Any]) -> Part | None:
    error, degrees = line["stderr"], line["degrees"]
    return None if error is None else Part(error * error, math.inf if degrees is None else degrees)


def _sentence(order: str, line: dict[str, Any], difference: Estimate, passed: bool) -> str:
    detectable = line.get("detectable")
    power = "" if passed or detectable is None else f"; {detectable:.2g} would have been told apart"
    return (
        f"under {ORDER_TITLES[order]} at {share_text(line['rate'])} it does {'' if passed else 'not clearly do '}"
        f"{'less' if order == 'lerf' else 'more'} harm than random rows of its own layers "
        f"({interval_words(difference)} nats per token from them{power})"
    )
