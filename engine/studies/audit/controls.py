"""Consensus controls: is it the agreement of LRP and IG that makes consensus2, and does any control beat it?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import polars as pl

from engine.edits.controls import NEEDED, REFERENCE, SMALLER, ControlMask, control_masks
from engine.measures.nll import NegativeLogLikelihood, perplexity
from engine.results.tables import frame
from engine.run.audit_plan import RandomMasksPlan
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.stats.blocks import block_difference
from engine.stats.paired import paired_difference
from engine.stats.removal_order import ORDERS
from engine.stats.saturation import both_above
from engine.stats.table_estimates import with_documents
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study


class Measured(NamedTuple):
    control: str
    order: str
    rate: float
    seed: int | None
    rows_removed: int
    size_matched_to: str | None
    result: NegativeLogLikelihood


@register_study(
    "controls", of=AUDIT, plan=RandomMasksPlan, tables=("controls", "control_differences"),
    title="What else could explain Consensus-2's result?",
)  # fmt: skip
class Controls(Study[AuditInputs]):
    """`controls`, one line per mask, and `control_differences`, every control against consensus2.

    Both removal orders at the plan's control rates. `size_matched_to` names the control whose number of rows a
    reference copies. A difference is the control's NLL minus consensus2's, paired over evaluation windows.
    `reference_rows`: rows that consensus2 removed: as many as the control, and for intersection and vetoes also as many
    as the rate says, as the paper compares them. z is null without a standard error; saturated where both are
    destroyed.

    Errors: InputError where the audit lacks the scores of lrp, ig, consensus2 or random."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        audit.require("the analysis of consensus controls", NEEDED)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        yield from (audit.nll(audit.edit(mask.rows)) for mask in _masks(audit))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        measured = []
        for one in _masks(audit):
            nll = results[audit.nll(audit.edit(one.rows))]
            place = (one.control, one.order, one.rate, one.seed)
            measured.append(Measured(*place, one.rows.size, one.size_matched_to, nll))
        return {
            "controls": controls_table(audit.loaded.id, measured),
            "control_differences": differences_table(audit.loaded.id, measured, audit.saturated_above(results)),
        }


def _masks(audit: AuditInputs) -> Iterator[ControlMask]:
    audit.require("the analysis of consensus controls", NEEDED)
    plan, rows = audit.plan, audit.loaded.rows
    for rate, order in product(plan.control_rates, ORDERS):
        yield from control_masks(audit.scores, rows, order, rate, seeds=plan.scoring.seeds, null_seeds=plan.null_seeds)


def controls_table(model: str, measured: Sequence[Measured]) -> pl.DataFrame:
    """One line per mask, in the order given."""
    lines = []
    for one in measured:
        nll = one.result.nats_per_token
        numbers = (one.rows_removed, nll, perplexity(nll))
        lines.append((model, one.control, one.order, one.rate, one.seed, *numbers, one.size_matched_to))
    return frame("controls", lines)


def differences_table(model: str, measured: Sequence[Measured], limit: float) -> pl.DataFrame:
    """Every control but consensus2 against consensus2 with as many rows and, where that differs, the rate's rows.
    limit: NLL above which a model is destroyed."""
    consensus = {(one.order, one.rate, one.size_matched_to): one for one in measured if one.control == REFERENCE}
    lines = []
    for one in measured:
        if one.control == REFERENCE or one.size_matched_to is not None:
            continue
        for reference in _references(one, consensus):
            difference, stderr = paired_difference(one.result, reference.result)
            z = difference / stderr if stderr else None
            blocks = block_difference(one.result, reference.result)
            sizes = (one.rows_removed, REFERENCE, reference.rows_removed)
            numbers = (difference, stderr, z, *blocks, both_above(limit, one.result, reference.result))
            lines.append((model, one.control, one.order, one.rate, one.seed, *sizes, *numbers))
    table = frame("control_differences", lines, optional=(*COLUMNS, "saturated"))
    return with_documents(table, measured[0].result.blocks if measured else None)


def _references(one: Measured, consensus: Mapping[tuple[str, float, str | None], Measured]) -> Iterator[Measured]:
    full = consensus[one.order, one.rate, None]
    if one.control in SMALLER:
        yield consensus[one.order, one.rate, one.control]
    if one.control not in SMALLER or one.rows_removed != full.rows_removed:
        yield full
