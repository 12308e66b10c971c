"""A verdict per selector, from the tables of gap, differences and stability."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.run.cell import Cell
from engine.run.runner import Results
from engine.selectors import get_selector
from engine.stats.verdict import judge_selectors
from engine.studies.audit.differences import Differences
from engine.studies.audit.gap import Gap
from engine.studies.audit.inputs import AuditInputs
from engine.studies.audit.stability import Stability, TooFewSizes
from engine.studies.base import Tables, register_analysis


@register_analysis("verdict", tables=("verdicts",), title="Is a selector faithful, and is it stable?")
class Verdicts:
    """`verdicts`: `judge_selectors` on gap, differences and, where it can be measured, stability."""

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        yield from Gap().cells(audit, known)
        yield from Differences().cells(audit, known)
        try:
            yield from Stability().cells(audit, known)
        except TooFewSizes:
            return  # the verdict says `unknown`

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        try:
            stability = Stability().tables(audit, results)["stability"]
        except TooFewSizes:
            stability = None
        return {
            "verdicts": judge_selectors(
                Gap().tables(audit, results)["gap"],
                Differences().tables(audit, results)["differences"],
                results[audit.dense].nats_per_token,
                stability,
                data_free=[name for name in audit.plan.scoring.selectors if get_selector(name).data_free],
            )
        }
