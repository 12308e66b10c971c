"""Specific: a selector does better than random rows of its own layers. Reads the table `specific`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from engine.stats.limits import BASELINE, Thresholds, clear
from engine.stats.table_estimates import between_draws
from engine.stats.uncertainty import Estimate, Part, estimate
from engine.studies.estimate_words import interval_words
from engine.studies.verdict.finding import NOT_APPLICABLE, NOT_MEASURED, Finding

SPECIFIC = "specific"
ORDER_NAMES = {"lerf": "LeRF", "morf": "MoRF"}
_HARM = {"lerf": "less", "morf": "more"}  # what a good selector does


def specificity(
    selectors: Sequence[str], specific: pl.DataFrame | None, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> dict[str, Finding]:
    """Per selector `specific`, `LeRF only`, `MoRF only`, `not`, `not measured`; random is `not applicable`.

    An order passes where the selector's NLL differs from the mean of its layer-matched controls in the right direction,
    by p adjusted over the selectors. The error holds the evaluation text, one further draw of the control's rows and,
    where it was measured, the calibration text. Number: the share of the LeRF advantage that the depths explain.
    """
    found = {BASELINE: Finding(NOT_APPLICABLE, (None,), ())}
    here = pl.DataFrame() if specific is None else specific.filter((pl.col("rate") - limits.rate).abs() < 1e-9)
    orders = limits.specific_orders
    estimates: dict[str, dict[str, Estimate]] = {order: {} for order in orders}
    for line in here.iter_rows(named=True):
        if line["order"] in orders and line["selector"] in selectors:
            of_draws = between_draws(draw_sweep, limits.rate, (line["selector"], line["order"]))
            estimates[line["order"]][line["selector"]] = estimate(line["difference"], [_part(line), *of_draws])
    passed = {
        order: clear({name: [one] for name, one in by_name.items()}, -1 if order == "lerf" else 1, limits.level)
        for order, by_name in estimates.items()
    }
    shares = {line["selector"]: line for line in here.iter_rows(named=True) if line["order"] == "lerf"}
    for name in selectors:
        if name == BASELINE:
            continue
        if not all(name in estimates[order] for order in orders):
            said = "whether it is more than its depths, against random rows of its own layers, was not measured"
            found[name] = Finding(NOT_MEASURED, (None,), (said,))
            continue
        yes = [order for order in orders if passed[order][name]]
        word = SPECIFIC if len(yes) == len(orders) else f"{ORDER_NAMES[yes[0]]} only" if yes else "not"
        reasons = [_sentence(order, estimates[order][name], order in yes, limits) for order in orders]
        share = shares[name]["depth_share"] if name in shares else None
        if share is not None:
            low, high = shares[name]["depth_share_low"], shares[name]["depth_share_high"]
            depth = f"{share:.0%} ({low:.0%} to {high:.0%})"
            reasons.append(f"random rows of its layers have {depth} of its LeRF advantage over random masks")
        found[name] = Finding(word, (share,), tuple(reasons))
    return found


def _part(line: dict[str, float | None]) -> Part | None:
    error, degrees = line["stderr"], line["degrees"]
    return None if error is None else Part(error * error, math.inf if degrees is None else degrees)


def _sentence(order: str, found: Estimate, passed: bool, limits: Thresholds) -> str:
    number = f"{interval_words(found)} nats per token from them"
    if passed:
        return (
            f"under {ORDER_NAMES[order]} at {limits.rate:.0%} it does {_HARM[order]} harm than random rows of its own "
            f"layers ({number})"
        )
    return (
        f"under {ORDER_NAMES[order]} at {limits.rate:.0%} it does not clearly do {_HARM[order]} harm than random rows "
        f"of its own layers ({number})"
    )
