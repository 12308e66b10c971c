"""Consensus controls: is it the agreement of LRP and IG that makes consensus2, and does any control beat it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import polars as pl

from engine.analysis.audit import Audit
from engine.analysis.control_masks import NEEDED, REFERENCE, SMALLER, control_masks
from engine.analysis.needs import require_selectors
from engine.analysis.uncertainty import paired_difference
from engine.evaluation.perplexity import NegativeLogLikelihood, perplexity
from engine.ranking import ORDERS

SCHEMA = {
    "model": pl.String,
    "control": pl.String,
    "order": pl.String,
    "rate": pl.Float64,
    "seed": pl.Int64,
    "rows_removed": pl.Int64,
    "nll": pl.Float64,
    "perplexity": pl.Float64,
    "size_matched_to": pl.String,
}
DIFFERENCES_SCHEMA = {
    "model": pl.String,
    "control": pl.String,
    "order": pl.String,
    "rate": pl.Float64,
    "seed": pl.Int64,
    "rows_removed": pl.Int64,
    "reference": pl.String,
    "reference_rows": pl.Int64,
    "difference": pl.Float64,
    "stderr": pl.Float64,
    "z": pl.Float64,
}


class Measured(NamedTuple):
    """A control's mask, measured."""

    control: str
    order: str
    rate: float
    seed: int | None
    rows_removed: int
    size_matched_to: str | None
    result: NegativeLogLikelihood


def controls(audit: Audit) -> dict[str, pl.DataFrame]:
    """`controls`, one line per mask, and `control_differences`, every control against consensus2.

    Both removal orders at the plan's control rates. `size_matched_to` names the control whose number of rows
    a reference copies. A difference is the control's NLL minus consensus2's, paired over evaluation
    windows. `reference_rows` says how many rows consensus2 removed: as many as the control, and for
    intersection and vetoes also as many as the rate says, which is how the paper compares them. z is
    null where there is no standard error. `engine.analysis.control_answers` puts it in words.

    Errors: InputError where the audit lacks the scores of lrp, ig, consensus2 or random.
    """
    require_selectors(audit, "the analysis of consensus controls", NEEDED)
    plan, scores, rows = audit.plan, audit.scores, audit.loaded.rows
    cells = list(product(plan.control_rates, ORDERS))
    measured: list[Measured] = []
    for rate, order in cells:
        masks = list(
            control_masks(scores, rows, order, rate, seeds=plan.scoring.seeds, null_seeds=plan.null_seeds)
        )
        for mask in masks:
            audit.report("controls", len(measured), len(cells) * len(masks))
            found = (mask.control, order, rate, mask.seed, mask.rows.size, mask.size_matched_to)
            measured.append(Measured(*found, audit.nll(mask.rows)))
    audit.report("controls", len(measured), len(measured))
    return {
        "controls": controls_table(audit.loaded.id, measured),
        "control_differences": differences_table(audit.loaded.id, measured),
    }


def controls_table(model: str, measured: Sequence[Measured]) -> pl.DataFrame:
    """One line per mask, in the order given."""
    lines = []
    for one in measured:
        nll = one.result.nats_per_token
        numbers = (one.rows_removed, nll, perplexity(nll))
        lines.append((model, one.control, one.order, one.rate, one.seed, *numbers, one.size_matched_to))
    return pl.DataFrame(lines, schema=SCHEMA, orient="row")


def differences_table(model: str, measured: Sequence[Measured]) -> pl.DataFrame:
    """Every control but consensus2 against consensus2 with as many rows and, where that differs, the rate's rows."""
    consensus = {
        (one.order, one.rate, one.size_matched_to): one for one in measured if one.control == REFERENCE
    }
    lines = []
    for one in measured:
        if one.control == REFERENCE or one.size_matched_to is not None:
            continue
        for reference in _references(one, consensus):
            difference, stderr = paired_difference(one.result, reference.result)
            z = difference / stderr if stderr else None
            sizes = (one.rows_removed, REFERENCE, reference.rows_removed)
            lines.append((model, one.control, one.order, one.rate, one.seed, *sizes, difference, stderr, z))
    return pl.DataFrame(lines, schema=DIFFERENCES_SCHEMA, orient="row")


def _references(
    one: Measured, consensus: Mapping[tuple[str, float, str | None], Measured]
) -> Iterator[Measured]:
    full = consensus[one.order, one.rate, None]
    if one.control in SMALLER:
        yield consensus[one.order, one.rate, one.control]
    if one.control not in SMALLER or one.rows_removed != full.rows_removed:
        yield full
