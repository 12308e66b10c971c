"""Specific: a selector does better than random rows of its own layers. Reads the table `specific`."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import polars as pl

from engine.stats.limits import BASELINE, Thresholds
from engine.stats.table_estimates import between_draws
from engine.stats.uncertainty import LEVEL, Estimate, Part, adjusted, estimate, student_t
from engine.studies.estimate_words import ORDER_TITLES, Answer, better_or_worse, interval_words, share_text

NOT_APPLICABLE, NOT_MEASURED = "not applicable", "not measured"


class Finding(NamedTuple):
    """The word, the numbers it rests on, and the reasons as sentences without a capital or a full stop."""

    word: str
    numbers: tuple[float | None, ...]
    reasons: tuple[str, ...]


SPECIFIC, SATURATED = "specific", "saturated"
DECIDED = "control_nll"  # tables with this column have each selector at a rate of its own
Key = TypeVar("Key", bound=Hashable)


class Told(NamedTuple):
    """What one of several tests says. detectable: the smallest difference that it would have told."""

    p_holm: float | None
    answer: Answer
    detectable: float | None


def told(differences: Mapping[Key, Estimate], order: str, level: float = LEVEL) -> dict[Key, Told]:
    """Holm over these differences of one order; none is told without an error."""
    p_holm = adjusted({key: p for key, one in differences.items() if (p := one.p_differs) is not None})
    answers = {}
    for key, one in differences.items():
        least = None
        if key in p_holm and one.stderr is not None and one.degrees is not None:
            confidence = 1 - level / (len(p_holm) * one.looks)
            if confidence < 1:  # at a level of nothing, nothing is told
                least = student_t(one.degrees, confidence) * one.stderr if one.stderr else 0.0
        p = p_holm.get(key)
        answers[key] = Told(p, better_or_worse(one.value, p, order, level), least)
    return answers


def with_draws(specific: pl.DataFrame, draw_sweep: pl.DataFrame | None, level: float = LEVEL) -> pl.DataFrame:
    """The table `specific` as verdicts, ledger and pages read it: the calibration text's part, where it was drawn anew
    (`draw_sweep`), is in stderr, degrees, interval, p, p_holm, answer and detectable."""
    rows = specific.rows(named=True)
    family = ("order",) if DECIDED in specific.columns else ("order", "rate")
    families: dict[tuple[Any, ...], dict[int, Estimate]] = {}
    for place, row in enumerate(rows):
        of_draws = between_draws(draw_sweep, row["rate"], (row["selector"], row["order"]))
        one = estimate(row["difference"], [_part(row), *of_draws], looks=row.get("looks") or 1)
        degrees = None if one.stderr == 0 else one.degrees
        row |= {"stderr": one.stderr, "degrees": degrees, "low": one.low, "high": one.high, "p": one.p_differs}
        if row["answer"] != SATURATED:
            families.setdefault(tuple(row[name] for name in family), {})[place] = one
    for (order, *_), differences in families.items():
        for place, answer in told(differences, order, level).items():
            rows[place] |= answer._asdict()
    return pl.DataFrame([{name: row[name] for name in specific.columns} for row in rows], schema=specific.schema)


def specificity(
    selectors: Sequence[str], specific: pl.DataFrame | None, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> dict[str, Finding]:
    """Per selector `specific`, `LeRF only`, `MoRF only`, `not`, `saturated`, `not measured`; random `not applicable`.

    An order passes where the selector's NLL differs from the mean of its layer-matched controls in the right direction,
    by p adjusted over the selectors, at the largest rate at which these controls are not saturated (the table's; in
    tables of before there was such a rule, at the reference rate). `saturated` where there is no such rate in one of
    the orders. The error holds the evaluation text, one further draw of the control's rows and, where it was measured,
    the calibration text (`with_draws`). Number: the share of the LeRF advantage that the depths explain."""
    orders = limits.specific_orders
    by_order: dict[str, dict[str, dict[str, Any]]] = {order: {} for order in ("lerf", "morf")}
    judged = _judged(specific, limits)
    if judged.height:
        judged = with_draws(judged.filter(pl.col("selector").is_in(list(selectors))), draw_sweep, limits.level)
    for line in judged.iter_rows(named=True):
        by_order[line["order"]][line["selector"]] = line
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
            findings[name] = _finding(lines, by_order["lerf"].get(name))
    return findings


def _judged(specific: pl.DataFrame | None, limits: Thresholds) -> pl.DataFrame:
    """The lines that verdicts rest on."""
    if specific is None:
        return pl.DataFrame()
    if DECIDED in specific.columns:
        return specific
    return specific.filter((pl.col("rate") - limits.rate).abs() < 1e-9)


def _finding(lines: dict[str, dict[str, Any]], lerf: dict[str, Any] | None) -> Finding:
    passed = [order for order, line in lines.items() if line["answer"] == "better"]
    word = SPECIFIC if len(passed) == len(lines) else f"{ORDER_TITLES[passed[0]]} only" if passed else "not"
    reasons = [_sentence(order, line, order in passed) for order, line in lines.items()]
    share = None if lerf is None else lerf["depth_share"]
    if lerf is not None and share is not None:
        low = "at most" if lerf["depth_share_low"] < -1 else f"{lerf['depth_share_low']:.0%} to"
        depth = f"{share:.0%} ({low} {lerf['depth_share_high']:.0%})"
        reasons.append(f"random rows of its layers have {depth} of its LeRF advantage over random masks")
    return Finding(word, (share,), tuple(reasons))


def _part(line: dict[str, Any]) -> Part | None:
    error, degrees = line["stderr"], line["degrees"]
    return None if error is None else Part(error * error, math.inf if degrees is None else degrees)


def _sentence(order: str, line: dict[str, Any], passed: bool) -> str:
    difference = Estimate(*(line[name] for name in ("difference", "stderr", "degrees", "low", "high")))
    detectable = line.get("detectable")
    power = "" if passed or detectable is None else f"; {detectable:.2g} would have been told apart"
    return (
        f"under {ORDER_TITLES[order]} at {share_text(line['rate'])} it does {'' if passed else 'not clearly do '}"
        f"{'less' if order == 'lerf' else 'more'} harm than random rows of its own layers "
        f"({interval_words(difference)} nats per token from them{power})"
    )
