"""The validity gap: how much more it costs to remove what a selector calls important. And the spread over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from engine.measures.nll import NegativeLogLikelihood
from engine.results.tables import frame
from engine.run.audit_plan import GapPlan
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.stats.blocks import block_difference
from engine.stats.paired import defined, paired_difference
from engine.stats.removal_order import ORDERS
from engine.stats.table_estimates import with_documents
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study


@register_study(
    "gap", of=AUDIT, plan=GapPlan, tables=("gap",), title="Does removing what a selector calls important cost more?"
)
class Gap(Study[AuditInputs]):
    """`gap`, one line per ranking and rate of the plan.

    gap = PPL_MoRF - PPL_LeRF as the paper prints it (section 3.2): infinite where only PPL_MoRF is, null
    where both are. log_gap = NLL_MoRF - NLL_LeRF, nats per token, with its paired standard error over windows and over
    blocks of them. Nothing is claimed where both exceed saturated_above (`engine.stats.saturation`).
    """

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        yield from audit.grid(audit.rankings, ORDERS, audit.plan.gap_rates).values()

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        limit, cells = audit.saturated_above(results), audit.grid(audit.rankings, ORDERS, audit.plan.gap_rates)
        lines = []
        for point, cell in cells.items():
            if point.order == "lerf":
                numbers = validity_gap(results[cell], results[cells[point._replace(order="morf")]])
                lines.append((audit.loaded.id, point.selector, point.seed, point.rate, *numbers, limit))
        table = frame("gap", lines, optional=(*COLUMNS, "saturated_above"))
        return {"gap": with_documents(table, audit.evaluation.blocks)}


@register_study("seeds", of=AUDIT, tables=("seeds",), title="How far apart are the seeds of a random ranking?")
class Seeds(Study[AuditInputs]):
    """`seeds`, the spread of the NLL over the seeds of each seeded selector, per order and gap rate.

    nll_sd is the sample standard deviation over seeds, null for a single seed.
    """

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        seeded = [ranking for ranking in audit.rankings if ranking.seed is not None]
        return audit.grid(seeded, ORDERS, audit.plan.gap_rates).values()

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        seeded = [ranking for ranking in audit.rankings if ranking.seed is not None]
        by_seed: dict[tuple[str, str, float], list[float]] = {}
        for point, cell in audit.grid(seeded, ORDERS, audit.plan.gap_rates).items():
            where = (point.selector, point.order, point.rate)
            by_seed.setdefault(where, []).append(results[cell].nats_per_token)
        lines = [(audit.loaded.id, *where, *spread(values)) for where, values in by_seed.items()]
        return {"seeds": frame("seeds", lines)}


def validity_gap(lerf: NegativeLogLikelihood, morf: NegativeLogLikelihood) -> tuple[float | None, ...]:
    """NLL and perplexity under both orders, gap, log gap, its errors: the columns of `gap` from `nll_lerf`."""
    log_gap, stderr = paired_difference(morf, lerf)
    printed = defined(morf.perplexity - lerf.perplexity)
    nll = (lerf.nats_per_token, morf.nats_per_token)
    return (*nll, lerf.perplexity, morf.perplexity, printed, log_gap, stderr, *block_difference(morf, lerf))


def spread(values: list[float]) -> tuple[float | None, ...]:
    """Number, mean, sample standard deviation (None for one value), least and greatest."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return len(values), statistics.fmean(values), sd, min(values), max(values)
