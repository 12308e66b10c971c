"""A verdict per selector, from the tables of gap, differences, specific, draws and stability."""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from engine.records.hashing import Json
from engine.run.audit_plan import VerdictPlan
from engine.run.runner import Cell, Results
from engine.selectors import get_selector
from engine.stats.limits import Thresholds
from engine.studies.audit.controls import Specific, specific_rates
from engine.studies.audit.gap import Differences, Gap
from engine.studies.audit.inputs import AuditInputs
from engine.studies.audit.stability import DisjointDraws, Stability, TooFewDraws, TooFewSizes, why_not_drawn
from engine.studies.audit.sweep import BudgetSearch
from engine.studies.base import AUDIT, Answer, Study, Tables, TextTable, register_study
from engine.studies.estimate_words import share_text
from engine.studies.verdict.judged_selectors import check_compared, judge_selectors
from engine.studies.verdict.verdict_moves import verdict_moves


@register_study(
    "verdict", of=AUDIT, plan=VerdictPlan, tables=("verdicts", "verdict_moves"),
    title="Is a selector faithful, and is it stable?",
)  # fmt: skip
class Verdicts(Study[AuditInputs]):
    """`verdicts`: `judge_selectors` on gap, differences and specific, and, where they can be measured, draws and
    nested sizes. `verdict_moves`: which words change when a limit of the plan moves. `draws` and `draw_sweep` are
    written again, with the masks at the rates at which `specific` compares: who reads them has the verdict's intervals.
    """

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
        try:
            drawn: Tables = DisjointDraws(further=specific_rates(audit, results)).tables(audit, results)
        except TooFewDraws:
            drawn = {}
        try:
            stability = Stability().tables(audit, results)["stability"]
        except TooFewSizes:
            stability = None
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

        def judged(limits: Thresholds) -> pl.DataFrame:
            return judge(thresholds=limits)

        limits = audit.plan.verdict.thresholds
        return {"verdicts": judged(limits), "verdict_moves": verdict_moves(judged, limits), **drawn}

    def answer(self, audit: AuditInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        verdicts = list(tables["verdicts"].iter_rows(named=True))
        columns = ("selector", "budget", "validity", "specific", "stability")
        why = [f"{verdict['selector']}: {verdict['reasons']}" for verdict in verdicts]
        return Answer((TextTable("verdicts", columns, list(map(_row, verdicts))), *why), dict(tables))

    def record(self, audit: AuditInputs) -> Json:
        """Which draws of calibration text the verdicts rest on."""
        try:
            return DisjointDraws().record(audit)
        except TooFewDraws:
            return {}


def _row(verdict: dict[str, Any]) -> tuple[str, ...]:
    validity = f"{verdict['validity']} (stable but invalid)" if verdict["stable_but_invalid"] else verdict["validity"]
    share = verdict.get("budget")
    budget = "–" if share is None else share_text(share)
    return verdict["selector"], budget, validity, verdict["specific"], verdict["stability"]
