"""The validity gap: how much more it costs to remove what a selector calls important. And the spread over seeds."""

import statistics
from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from typing import Any

from engine.measures.nll import NegativeLogLikelihood
from engine.results.tables import frame
from engine.run.audit_plan import GapPlan
from engine.run.runner import Cell, Results
from engine.stats.blocks import block_difference, defined, paired_difference
from engine.stats.removal_order import ORDERS
from engine.stats.saturation import both_above
from engine.stats.table_estimates import with_documents
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.inputs import AuditInputs, Point
from engine.studies.base import AUDIT, Study, Tables, register_study


class _BothOrders(Study[AuditInputs]):
    """The masks of all rankings in both orders at the plan's gap rates."""

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        yield from audit.grid(audit.rankings, ORDERS, audit.plan.gap_rates).values()


@register_study(
    "gap", of=AUDIT, plan=GapPlan, tables=("gap",), title="Does removing what a selector calls important cost more?"
)
class Gap(_BothOrders):
    """`gap`, one line per ranking and rate of the plan.

    gap = PPL_MoRF - PPL_LeRF as the paper prints it (section 3.2): infinite where only PPL_MoRF is, null
    where both are. log_gap = NLL_MoRF - NLL_LeRF, nats per token, with its paired standard error over windows and over
    blocks of them. Nothing is claimed where both exceed saturated_above (`engine.stats.saturation`)."""

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
    nll_sd is the sample standard deviation over seeds, null for a single seed."""

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


@register_study("differences", of=AUDIT, tables=("differences",), title="Which differences between selectors are real?")
class Differences(_BothOrders):
    """`differences`: NLL of a minus NLL of b, nats per token, with paired standard error and z = their quotient.

    kind `lerf`: the LeRF masks of each pair of selectors, every seed against every seed; kind `gap`: MoRF
    minus LeRF of one ranking (the log gap). At the plan's gap rates. z is null where there is no spread; it and
    stderr take windows as independent, stderr_blocks does not. saturated: both models are destroyed
    (`engine.stats.saturation`), and nothing is claimed."""

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        limit, cells = audit.saturated_above(results), audit.grid(audit.rankings, ORDERS, audit.plan.gap_rates)
        lines = []
        for rate in audit.plan.gap_rates:
            for kind, a, b in _comparisons(cells, rate):
                pair = results[cells[a]], results[cells[b]]
                difference, stderr = paired_difference(*pair)
                z = difference / stderr if stderr else None
                sides = (a.selector, a.order, a.seed, b.selector, b.order, b.seed)
                numbers = (difference, stderr, z, *block_difference(*pair), both_above(limit, *pair))
                lines.append((audit.loaded.id, kind, *sides, rate, *numbers))
        table = frame("differences", lines, optional=(*COLUMNS, "saturated"))
        return {"differences": with_documents(table, audit.evaluation.blocks)}


def _comparisons(points: Collection[Point], rate: float) -> Iterator[tuple[str, Point, Point]]:
    lerf = [point for point in points if point.rate == rate and point.order == "lerf"]
    for a, b in combinations(lerf, 2):
        if a.selector != b.selector:
            yield "lerf", a, b
    for point in lerf:
        yield "gap", point._replace(order="morf"), point
