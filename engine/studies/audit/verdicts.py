"""The validity gap (how much more it costs to remove what a selector calls important), the spread over seeds,
differences between selectors; and a verdict per selector, from these, specific, draws and stability."""

import statistics
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from engine.measures.nll import NegativeLogLikelihood
from engine.records.hashing import Json
from engine.results.tables import frame
from engine.run.audit_plan import GapPlan, VerdictPlan
from engine.run.runner import Cell, Results
from engine.selectors import get_selector
from engine.stats.blocks import block_difference, defined, paired_difference, with_documents
from engine.stats.limits import both_above
from engine.stats.removal_order import ORDERS
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.agreement import spearman_table
from engine.studies.audit.audit_inputs import AuditInputs, Point
from engine.studies.audit.controls import Specific, specific_rates
from engine.studies.audit.stability import DisjointDraws, Stability, TooFewDraws, TooFewSizes, why_not_drawn
from engine.studies.audit.sweeps import BudgetSearch
from engine.studies.base import AUDIT, Answer, Study, Tables, TextTable, register_study
from engine.studies.estimate_words import glossary_line, nearly_ours, share_text
from engine.studies.verdict.judged_selectors import check_compared, judge_selectors
from engine.studies.verdict.verdict_moves import verdict_moves


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
    blocks of them. Nothing is claimed where both exceed saturated_above (`engine.stats.limits`)."""

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
    (`engine.stats.limits`), and nothing is claimed."""

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


@register_study(
    "verdict", of=AUDIT, plan=VerdictPlan, tables=("verdicts", "verdict_moves"),
    title="Is a selector faithful, and is it stable?",
)  # fmt: skip
class Verdicts(Study[AuditInputs]):
    """`verdicts`: `judge_selectors` on gap, differences and specific, and, where they can be measured, draws and
    nested sizes. `verdict_moves`: which words change when a limit of the plan moves. `draws` and `draw_sweep` are
    written again, with the masks at the rates at which `specific` compares: who reads them has the verdict's intervals.
    """

    searches = True

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        check_compared(audit.plan.gap_rates, audit.plan.scoring.selectors, audit.plan.verdict.thresholds)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        yield from BudgetSearch().cells(audit, known)
        yield from Gap().cells(audit, known)
        yield from Differences().cells(audit, known)
        yield from Specific().cells(audit, known)
        with suppress(TooFewSizes):  # the verdict says so
            yield from Stability().cells(audit, known)
        with suppress(TooFewDraws):
            yield from DisjointDraws(further=specific_rates(audit, known)).cells(audit, known)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        drawn: Tables = {}
        stability = None
        with suppress(TooFewDraws):
            drawn = DisjointDraws(further=specific_rates(audit, results)).tables(audit, results)
        with suppress(TooFewSizes):
            stability = Stability().tables(audit, results)["stability"]
        infos = [get_selector(name) for name in audit.plan.scoring.selectors]
        judge = partial(
            judge_selectors,
            Gap().tables(audit, results)["gap"],
            Differences().tables(audit, results)["differences"],
            results[audit.dense].nats_per_token,
            stability,
            specific=Specific().tables(audit, results)["specific"],
            draws=drawn.get("draws"),
            draw_sweep=drawn.get("draw_sweep"),
            budget=BudgetSearch().tables(audit, results)["budget"],
            why_no_draws=why_not_drawn(audit),
            data_free=[info.id for info in infos if info.data_free and not info.files],
        )

        limits = audit.plan.verdict.thresholds
        moves = verdict_moves(lambda moved: judge(thresholds=moved), limits)
        return {"verdicts": judge(thresholds=limits), "verdict_moves": moves, **drawn}

    def answer(self, audit: AuditInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        verdicts = list(tables["verdicts"].iter_rows(named=True))
        columns = ("selector", "budget", "validity", "specific", "stability")
        own = [name for name in audit.plan.scoring.selectors if get_selector(name).files]
        alike = nearly_ours(spearman_table(audit), own) if own else {}
        why = [
            f"{one['selector']} is {ANSWERS.get(one['validity'], 'faithful')}: {one['reasons']}"
            + (f" {alike[one['selector']]}." if one["selector"] in alike else "")
            for one in verdicts
        ]
        table = TextTable("verdicts", columns, list(map(_row, verdicts)))
        return Answer((table, *why, *filter(None, [glossary_line(" ".join(why))])), dict(tables))

    def record(self, audit: AuditInputs) -> Json:
        """Which draws of calibration text the verdicts rest on."""
        with suppress(TooFewDraws):
            return DisjointDraws().record(audit)
        return {}


ANSWERS = {"sufficient": "sufficient, not shown to be specific", "partly": "sufficient in part", "not": "not faithful"}


def _row(verdict: dict[str, Any]) -> tuple[str, ...]:
    validity = {"not": ANSWERS["not"]}.get(verdict["validity"], verdict["validity"])
    validity += " (stable but invalid)" * bool(verdict["stable_but_invalid"])
    share = verdict.get("budget")
    budget = "–" if share is None else share_text(share)
    return verdict["selector"], budget, validity, verdict["specific"], verdict["stability"]
