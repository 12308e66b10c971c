"""LeRF/MoRF curves: every measure of the plan under growing edits of every ranking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt
import polars as pl

from engine.data.corpora import Windows
from engine.edits.edit import ZERO
from engine.edits.ranked_edits import Ranking, rankings
from engine.measures.base import MEASURES
from engine.measures.nll import Nll, perplexity
from engine.models.loading import LoadedModel
from engine.records.progress import Progress
from engine.results.store import Store
from engine.results.tables import frame
from engine.run.cell import Cell
from engine.run.plans import RATES
from engine.run.runner import LocalRunner, Results
from engine.selectors.base import SEEDS
from engine.stats.removal_order import ORDERS
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import Tables, register_analysis


class _Point(NamedTuple):
    ranking: Ranking
    order: str
    rate: float
    cell: Cell[Any]


@register_analysis("sweep", tables=("sweep", "sweep_measures"), title="What is left as more and more rows are removed?")
class Sweep:
    """`sweep`, the NLL of the model with the first `round(rate * N)` rows of every ranking removed, and
    `sweep_measures`, the plan's other measures of the same edits. The paper, section 3.4.
    """

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        for name in audit.plan.measures:
            yield from (point.cell for point in self._points(audit, name))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        tables: Tables = {}
        # Tables of the first intervention have no such column, as they never had.
        more = {} if audit.plan.intervention == ZERO else {"intervention": audit.plan.intervention}
        if "nll" in audit.plan.measures:
            lines = [(*_line(audit.loaded.id, point, results), *more.values()) for point in self._points(audit, "nll")]
            tables["sweep"] = frame("sweep", lines, optional=tuple(more))
        others = [
            (
                *_place(audit.loaded.id, point),
                name,
                found.value,
                found.stderr,
                found.tokens,
                MEASURES.get(name).unit,
                *more.values(),
            )
            for name in audit.plan.measures
            if name != "nll"
            for point in self._points(audit, name)
            for found in [results[point.cell]]
        ]
        if others:
            tables["sweep_measures"] = frame("sweep_measures", others, optional=tuple(more))
        return tables

    def _points(self, audit: AuditInputs, measure: str) -> list[_Point]:
        made = MEASURES.get(measure).make(audit.evaluation, audit.plan.scoring.batch_size)
        return _grid(audit.loaded, audit.rankings, audit.plan.orders, audit.plan.sweep_rates, made)


def sweep_model(
    loaded: LoadedModel,
    scores: Mapping[str, npt.ArrayLike],
    windows: Windows,
    *,
    store: Store,
    orders: Sequence[str] = ORDERS,
    rates: Sequence[float] = RATES,
    seeds: Sequence[int] = SEEDS,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """The table `sweep` of scores that are there already: selector, seed, order, rate as given.

    scores: selector id -> [N], random -> [seeds, N]; higher = more important. Cells that the store has are not
    measured again. The paper, section 3.4.
    """
    points = _grid(loaded, list(rankings(scores, seeds)), orders, rates, Nll(windows, batch_size))
    results = LocalRunner(store, progress).run([point.cell for point in points])
    return frame("sweep", [_line(loaded.id, point, results) for point in points])


def _grid(
    loaded: LoadedModel, ranked: Iterable[Ranking], orders: Sequence[str], rates: Sequence[float], measure: Any
) -> list[_Point]:
    return [
        _Point(ranking, order, rate, Cell(loaded, ranking.edit(order, rate), measure))
        for ranking in ranked
        for order in orders
        for rate in sorted(rates)
    ]


def _place(model: str, point: _Point) -> tuple[object, ...]:
    ranking = point.ranking
    return model, ranking.selector, ranking.seed, point.order, point.rate, point.cell.edit.size


def _line(model: str, point: _Point, results: Results) -> tuple[object, ...]:
    found = results[point.cell]
    nll = found.nats_per_token
    return (*_place(model, point), nll, found.stderr, found.tokens, perplexity(nll))
