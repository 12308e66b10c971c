"""Budget: the largest share of rows that can go before perplexity exceeds a multiple of the unedited model's."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from engine.edits.masks import removed_count
from engine.edits.ranked_edits import Ranking
from engine.results.tables import frame
from engine.run.audit_plan import BudgetPlan
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.stats.blocks import block_difference
from engine.stats.removal_budget import Harm, first_crossing, next_count
from engine.stats.removal_order import ORDERS
from engine.stats.table_estimates import with_documents
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import AUDIT, Answer, Study, Tables, register_study
from engine.studies.verdict.removal_budgets import limit_words, removal_budgets


@register_study(
    "budget", of=AUDIT, plan=BudgetPlan, tables=("budget",), title="How many rows can go before perplexity doubles?"
)
class BudgetSearch(Study[AuditInputs]):
    """`budget`, one line per ranking and order: the largest share of rows whose removal, and that of every smaller
    share that was measured, keeps NLL <= dense + ln(`budget_factor`).

    Rising rates (`budget_rates`) until the first that exceeds the limit, then bisection on exact masks in the logarithm
    of the rows until the bracket is narrower than `budget_resolution` of the budget, so some eight cells per ranking
    and order. A curve that returns below the limit later counts by its first crossing among what was measured. The
    interval is over blocks of evaluation text (`engine.stats.removal_budget`). Beyond the paper."""

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        for ranking, order in _curves(audit):
            measured = _harms(audit, ranking, order, known)
            yield from (_cell(audit, ranking, order, count) for count in measured)
            count = next_count(measured, _limit(audit), _scan(audit, ranking), audit.plan.budget_resolution)
            if count is not None:
                yield _cell(audit, ranking, order, count)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        lines = []
        for ranking, order in _curves(audit):
            harms, all_rows = _harms(audit, ranking, order, results), ranking.scores.size
            budget = first_crossing(harms, _limit(audit))
            dense = results[audit.dense].nats_per_token
            lines.append((
                audit.loaded.id, ranking.selector, ranking.seed, order, audit.plan.budget_factor,
                *(None if count is None else count / all_rows for count in budget),
                budget.rows, budget.beyond,
                dense + (harms[budget.rows].nats if budget.rows else 0.0),
                None if budget.beyond is None else dense + harms[budget.beyond].nats,
                dense, len(harms), min(harm.blocks for harm in harms.values()),
            ))  # fmt: skip
        table = frame("budget", lines, optional=())
        return {"budget": with_documents(table, audit.evaluation.blocks)}

    def line(self, audit: AuditInputs, tables: Tables) -> str:
        budgets = removal_budgets(tables["budget"], "lerf")
        each = ", ".join(f"{name} {budget}" for name, budget in budgets.items())
        return f"rows that can go before {limit_words(tables['budget'])}: {each}"

    def answer(self, audit: AuditInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        return Answer((self.line(audit, tables),), dict(tables))


def _curves(audit: AuditInputs) -> Iterator[tuple[Ranking, str]]:
    return ((ranking, order) for ranking in audit.rankings for order in ORDERS)


def _limit(audit: AuditInputs) -> float:
    return math.log(audit.plan.budget_factor)


def _scan(audit: AuditInputs, ranking: Ranking) -> list[int]:
    """The numbers of rows that are removed before anything is bisected, rising; 0 is the unedited model."""
    counts = {removed_count(rate, ranking.scores.size) for rate in audit.plan.budget_rates}
    return sorted(counts - {0})


def _cell(audit: AuditInputs, ranking: Ranking, order: str, count: int) -> Cell[Any]:
    return audit.nll(ranking.first(order, count))


def _harms(audit: AuditInputs, ranking: Ranking, order: str, known: Results) -> dict[int, Harm]:
    """What is known of a curve, by the numbers of rows that the search asks for one after another."""
    harms: dict[int, Harm] = {}
    if audit.dense not in known:
        return harms
    dense, scan = known[audit.dense], _scan(audit, ranking)
    while (count := next_count(harms, _limit(audit), scan, audit.plan.budget_resolution)) is not None:
        cell = _cell(audit, ranking, order, count)
        if cell not in known:
            break
        result = known[cell]
        harms[count] = Harm(result.nats_per_token - dense.nats_per_token, *block_difference(result, dense))
    return harms
