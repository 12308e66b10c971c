"""Which NLL differences are real: paired standard errors over evaluation windows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from typing import Any

from engine.results.tables import frame
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.stats.blocks import block_difference
from engine.stats.paired import paired_difference
from engine.stats.removal_order import ORDERS
from engine.stats.saturation import both_above
from engine.stats.table_estimates import with_documents
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.inputs import AuditInputs, Point
from engine.studies.base import AUDIT, Study, Tables, register_study


@register_study("differences", of=AUDIT, tables=("differences",), title="Which differences between selectors are real?")
class Differences(Study[AuditInputs]):
    """`differences`: NLL of a minus NLL of b, nats per token, with paired standard error and z = their quotient.

    kind `lerf`: the LeRF masks of each pair of selectors, every seed against every seed; kind `gap`: MoRF
    minus LeRF of one ranking (the log gap). At the plan's gap rates. z is null where there is no spread; it and
    stderr take windows as independent, stderr_blocks does not. saturated: both models are destroyed
    (`engine.stats.saturation`), and nothing is claimed.
    """

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        yield from audit.grid(audit.rankings, ORDERS, audit.plan.gap_rates).values()

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
