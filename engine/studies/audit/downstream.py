"""How much of what the model can do is left under each edit: accuracy on downstream tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from engine.edits.ranked_edits import Ranking
from engine.measures.harness import Harness, TaskScores
from engine.measures.harness_tasks import ACCURACY, DownstreamTask, check_tasks, downstream_tasks
from engine.records.environment import installed_version
from engine.results.tables import frame
from engine.run.audit_plan import DownstreamPlan
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study


@register_study(
    "downstream",
    of=AUDIT,
    plan=DownstreamPlan,
    tables=("downstream", "downstream_tasks"),
    reads_text=False,
    title="What can the model still do?",
)
class Downstream(Study[AuditInputs]):
    """Zero-shot accuracy of every task under the LeRF edit of every selector and rate. The paper, section 3.4.

    `downstream` (standard errors over the items of a task) and `downstream_tasks`, what was asked.
    Errors: InputError where lm-eval or the tasks are not to be had.
    """

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        check_tasks(audit.plan.downstream_tasks)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        for _, _, _, cell in self._points(audit):
            yield cell

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        lines = []
        for ranking, rate, task, cell in self._points(audit):
            found = results[cell]
            place = (audit.loaded.id, ranking.selector, ranking.seed, "lerf", rate, cell.edit.size)
            lines.append((*place, task.name, task.items, found.mean, found.stderr, task.chance))
        asked = []
        for task, measure in self._tasks(audit):
            about = (task.source, task.version, ACCURACY, task.items, task.requests_hash, task.chance)
            longest = (*measure.harness.longest(task.task), measure.batch_size)
            asked.append((audit.loaded.id, task.name, *about, *longest, installed_version("lm_eval")))
        return {"downstream": frame("downstream", lines), "downstream_tasks": frame("downstream_tasks", asked)}

    def __init__(self, audit: AuditInputs | None = None) -> None:
        self._made: list[tuple[DownstreamTask, TaskScores]] = []

    def _tasks(self, audit: AuditInputs) -> list[tuple[DownstreamTask, TaskScores]]:
        if not self._made:
            tasks = downstream_tasks(audit.plan.downstream_tasks, audit.plan.downstream_items)
            harness = Harness(audit.loaded)
            for task in tasks:
                longest, _ = harness.longest(task.task)
                size = audit.plan.scoring.batch_size or harness.batch_size(longest)
                self._made.append((task, TaskScores(harness, task.task, size)))
        return self._made

    def _points(self, audit: AuditInputs) -> Iterator[tuple[Ranking, float, DownstreamTask, Cell[Any]]]:
        tasks = self._tasks(audit)
        for ranking in audit.rankings:
            for rate in sorted(audit.plan.downstream_rates):
                for task, measure in tasks:
                    yield ranking, rate, task, Cell(audit.loaded, ranking.edit("lerf", rate), measure)
