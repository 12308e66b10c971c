"""Curves: every measure of the plan, what the model says, and the budget, under growing edits of every ranking."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
import polars as pl

from engine.data.corpora import Windows
from engine.data.prompts import thinking_record
from engine.edits.edit import ZERO, Ranking, rankings
from engine.edits.masks import removed_count
from engine.measures.base import MEASURES, Given
from engine.measures.generation import BATCH_SIZE
from engine.measures.nll import Nll, perplexity
from engine.measures.replies import Replies, Written
from engine.models.loading import LoadedModel
from engine.records.hashing import Json
from engine.records.progress import Progress, SoFar
from engine.results.store import Store
from engine.results.tables import frame
from engine.run.audit_plan import SWEEP_RATES, BudgetPlan, RepliesPlan
from engine.run.runner import Cell, LocalRunner, Results
from engine.selectors.base import SEEDS
from engine.stats.blocks import block_difference, block_error, with_documents
from engine.stats.limits import Harm, first_crossing, next_count
from engine.stats.removal_order import ORDERS
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Answer, Study, Tables, TextTable, register_study
from engine.studies.estimate_words import limit_words, removal_budgets, share_text


class Point(NamedTuple):
    ranking: Ranking
    order: str
    rate: float
    cell: Cell[Any]


@register_study(
    "sweep", of=AUDIT, tables=("sweep", "sweep_measures", "sweep_interventions"),
    title="What is left as more and more rows are removed?",
)  # fmt: skip
class Sweep(Study[AuditInputs]):
    """`sweep`, the NLL of the model with the first `round(rate * N)` rows of every ranking removed, and
    `sweep_measures`, the plan's other measures of the same edits. The paper, section 3.4. `sweep_interventions`: the
    same curves under the plan's further interventions, beyond the paper."""

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        if "nll" in audit.plan.measures:
            yield audit.dense
        for name in audit.plan.measures:
            yield from (point.cell for point in self._points(audit, name))
        for intervention in audit.plan.more_interventions or ():
            yield from (point.cell for point in self._points_under(audit, intervention))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        tables: Tables = {}
        # Tables of the first intervention have no such column, as they never had.
        more = {} if audit.plan.intervention == ZERO else {"intervention": audit.plan.intervention}
        if "nll" in audit.plan.measures:
            lines = [(*_line(audit.loaded.id, point, results), *more.values()) for point in self._points(audit, "nll")]
            table = frame("sweep", lines, optional=(*COLUMNS, *more))
            limit = audit.saturated_above(results)
            tables["sweep"] = with_documents(table, audit.evaluation.blocks).with_columns(saturated_above=limit)
        others = []
        for name in (name for name in audit.plan.measures if name != "nll"):
            for point in self._points(audit, name):
                result = results[point.cell]
                numbers = (result.value, result.stderr, result.tokens, MEASURES.get(name).unit)
                others.append((*_place(audit.loaded.id, point), name, *numbers, *more.values()))
        if audit.plan.more_interventions:
            under = []
            for intervention in audit.plan.more_interventions:
                for point in self._points_under(audit, intervention):
                    model, *rest = _line(audit.loaded.id, point, results)
                    under.append((model, intervention, *rest))
            table = frame("sweep_interventions", under)
            tables["sweep_interventions"] = with_documents(table, audit.evaluation.blocks)
        if others:
            tables["sweep_measures"] = frame("sweep_measures", others, optional=tuple(more))
        return tables

    def so_far(self, audit: AuditInputs, results: Results) -> SoFar:
        """The curves' cells that are measured, and what is drawn of them."""
        points = self._points(audit, "nll") if "nll" in audit.plan.measures else []
        columns = ["selector", "seed", "order", "rate", "rows_removed", "nll", "nll_stderr", "tokens"]

        def measured() -> dict[str, object]:
            rows = []
            for point in points:
                if point.cell in results:
                    result = results[point.cell]
                    _, *place = _place(audit.loaded.id, point)
                    rows.append([*place, _finite(result.nats_per_token), _finite(result.stderr), result.tokens])
            return {"table": "sweep", "columns": columns, "rows": rows}

        return measured

    def answer(self, audit: AuditInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        shown: Tables = {stem: table for stem, table in tables.items() if stem != "sweep_interventions"}
        return Answer((_summary(tables["sweep"]),) if "sweep" in tables else (), {**shown})

    def _points_under(self, audit: AuditInputs, intervention: str) -> list[Point]:
        """The curves under a further intervention; the plan's own are in `sweep`."""
        ranked, rates = audit.rankings_under(intervention), audit.plan.rates_under_more
        return points_of(audit.loaded, ranked, audit.plan.orders, rates, _measure(audit, "nll"))

    def _points(self, audit: AuditInputs, measure: str) -> list[Point]:
        rates = audit.plan.sweep_rates
        return points_of(audit.loaded, audit.rankings, audit.plan.orders, rates, _measure(audit, measure))


def sweep_model(
    loaded: LoadedModel,
    scores: Mapping[str, npt.ArrayLike],
    windows: Windows,
    *,
    store: Store,
    orders: Sequence[str] = ORDERS,
    rates: Sequence[float] = SWEEP_RATES,
    seeds: Sequence[int] = SEEDS,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """The table `sweep` of scores that are there already: selector, seed, order, rate as given.
    scores: selector id -> [N], random -> [seeds, N]; higher = more important. Cells that the store has are not
    measured again. The paper, section 3.4."""
    points = points_of(loaded, list(rankings(scores, seeds)), orders, rates, Nll(windows, batch_size))
    results = LocalRunner(store, progress).run([point.cell for point in points])
    table = frame("sweep", [_line(loaded.id, point, results) for point in points], optional=COLUMNS)
    return with_documents(table, windows.blocks)


def points_of(
    loaded: LoadedModel, ranked: Iterable[Ranking], orders: Sequence[str], rates: Sequence[float], measure: Any
) -> list[Point]:
    return [
        Point(ranking, order, rate, Cell(loaded, ranking.edit(order, rate), measure))
        for ranking in ranked
        for order in orders
        for rate in sorted(rates)
    ]


def _summary(table: pl.DataFrame) -> TextTable:
    """NLL per selector, mean over seeds, at all of a few rates, or at those that people quote."""
    rates = sorted(set(table["rate"]))
    quoted = [rate for rate in rates if len(rates) <= 6 or rate in (0.0, 0.1, 0.2, 0.3, 0.5)] or rates[:6]
    means = table.group_by("selector", "order", "rate", maintain_order=True).agg(pl.col("nll").mean())
    rows = []
    for selector, order in means.select("selector", "order").unique(maintain_order=True).iter_rows():
        nll_by_rate = dict(means.filter(selector=selector, order=order).select("rate", "nll").iter_rows())
        rows.append((selector, order, *(f"{nll_by_rate[rate]:.3f}" for rate in quoted)))
    columns = ("selector", "order", *map(share_text, quoted))
    return TextTable("NLL, nats per token (perplexity = e^NLL)", columns, rows, 2)


def _measure(audit: AuditInputs, name: str) -> Any:
    """The measure on what the plan has for it to read."""
    asked = audit.plan.replies
    given = Given(audit.evaluation, audit.plan.scoring.batch_size, asked.replies_prompts, asked.replies_tokens)
    return MEASURES.get(name).make(given)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _place(model: str, point: Point) -> tuple[object, ...]:
    ranking = point.ranking
    return model, ranking.selector, ranking.seed, point.order, point.rate, point.cell.edit.size


def _line(model: str, point: Point, results: Results) -> tuple[object, ...]:
    result = results[point.cell]
    nll = result.nats_per_token
    return (*_place(model, point), nll, result.stderr, result.tokens, perplexity(nll), *block_error(result))


@register_study(
    "replies", of=AUDIT, plan=RepliesPlan, tables=("sweep_replies",), reads_text=False,
    title="What does the model still say as rows are removed?",
)  # fmt: skip
class SweepReplies(Study[AuditInputs]):
    """`sweep_replies`: greedy replies to the plan's prompts under the edits of the sweep, of a seeded selector those of
    its first seed.

    They show what a perplexity means; they measure nothing. Not in the paper. Thinking is off where the chat template
    has a switch; otherwise a reply begins with what the model thinks."""

    def record(self, audit: AuditInputs) -> Json:
        return dict(thinking_record(audit.loaded.tokenizer))

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[list[Written]]]:
        return (point.cell for point in self._points(audit))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        prompts = audit.plan.replies.replies_prompts
        lines: list[tuple[object, ...]] = []
        for point in self._points(audit):
            place, said = _place(audit.loaded.id, point), results[point.cell]
            lines += [(*place, prompt, one.text, one.finished) for prompt, one in zip(prompts, said, strict=True)]
        return {"sweep_replies": frame("sweep_replies", lines)}

    def _points(self, audit: AuditInputs) -> list[Point]:
        plan = audit.plan
        measure = Replies(plan.replies.replies_prompts, plan.replies.replies_tokens, BATCH_SIZE)
        ranked = map(audit.ranking, plan.scoring.selectors)
        return points_of(audit.loaded, ranked, plan.orders, plan.sweep_rates, measure)


@register_study(
    "budget", of=AUDIT, plan=BudgetPlan, tables=("budget",), title="How many rows can go before perplexity doubles?"
)
class BudgetSearch(Study[AuditInputs]):
    """`budget`, one line per ranking and order: the largest share of rows whose removal, and that of every smaller
    share that was measured, keeps NLL <= dense + ln(`budget_factor`).

    Rising rates (`budget_rates`) until the first that exceeds the limit, then bisection on exact masks in the logarithm
    of the rows until the bracket is narrower than `budget_resolution` of the budget, so some eight cells per ranking
    and order. A curve that returns below the limit later counts by its first crossing among what was measured. The
    interval is over blocks of evaluation text (`engine.stats.limits`). Beyond the paper."""

    searches = True

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        for ranking, order in product(audit.rankings, audit.plan.budget_orders):
            measured = _harms(audit, ranking, order, known)
            yield from (audit.nll(ranking.first(order, count)) for count in measured)
            count = next_count(measured, _limit(audit), _scan(audit, ranking), audit.plan.budget_resolution)
            if count is not None:
                yield audit.nll(ranking.first(order, count))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        lines = []
        for ranking, order in product(audit.rankings, audit.plan.budget_orders):
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
        return {"budget": with_documents(frame("budget", lines), audit.evaluation.blocks)}

    def line(self, audit: AuditInputs, tables: Tables) -> str:
        budgets = removal_budgets(tables["budget"], "lerf")
        each = ", ".join(f"{name} {budget}{budget.interval}" for name, budget in budgets.items())
        return f"rows that can go before {limit_words(tables['budget'])}: {each}"

    def answer(self, audit: AuditInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        return Answer((self.line(audit, tables),), dict(tables))


def _limit(audit: AuditInputs) -> float:
    return math.log(audit.plan.budget_factor)


def _scan(audit: AuditInputs, ranking: Ranking) -> list[int]:
    """The numbers of rows that are removed before anything is bisected, rising; 0 is the unedited model."""
    return sorted({removed_count(rate, ranking.scores.size) for rate in audit.plan.budget_rates} - {0})


def _harms(audit: AuditInputs, ranking: Ranking, order: str, known: Results) -> dict[int, Harm]:
    """What is known of a curve, by the numbers of rows that the search asks for one after another."""
    harms: dict[int, Harm] = {}
    if audit.dense not in known:
        return harms
    dense, scan = known[audit.dense], _scan(audit, ranking)
    while (count := next_count(harms, _limit(audit), scan, audit.plan.budget_resolution)) is not None:
        cell = audit.nll(ranking.first(order, count))
        if cell not in known:
            break
        result = known[cell]
        harms[count] = Harm(result.nats_per_token - dense.nats_per_token, *block_difference(result, dense))
    return harms
