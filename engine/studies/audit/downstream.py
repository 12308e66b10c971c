"""How much of what the model can do is left under each edit: accuracy on downstream tasks."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from engine.edits.edit import Ranking
from engine.measures.harness import ACCURACY, DownstreamTask, Harness, TaskScores, check_tasks, downstream_tasks
from engine.records.hashing import installed_version
from engine.results.tables import frame
from engine.run.audit_plan import DownstreamPlan
from engine.run.runner import Cell, Results
from engine.stats.blocks import paired_rates
from engine.stats.uncertainty import LEVEL, adjusted
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study

ALL = "all"  # the items of all tasks together


@register_study(
    "downstream", of=AUDIT, plan=DownstreamPlan, tables=("downstream", "downstream_tasks", "downstream_pairs"),
    reads_text=False, title="What can the model still do?",
)  # fmt: skip
class Downstream(Study[AuditInputs]):
    """Zero-shot accuracy of every task under the LeRF edit of every selector and rate. The paper, section 3.4.

    `downstream` (standard errors over the items of a task), `downstream_tasks`, what was asked, and `downstream_pairs`,
    the masks of each two selectors on the same items, every seed against every seed: McNemar's exact test, Holm over
    the pairs of a task and rate, and the smallest difference that it would have told with as many changed items.
    Errors: InputError where lm-eval or the tasks are not to be had."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        check_tasks(audit.plan.downstream_tasks)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        for _, _, _, cell in _points(audit):
            yield cell

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        lines = []
        right: dict[tuple[float, str], dict[Ranking, list[bool]]] = {}
        for ranking, rate, task, cell in _points(audit):
            result = results[cell]
            if rate and set(result.values) <= {0.0, 1.0}:
                for name in (task.name, ALL):
                    right.setdefault((rate, name), {}).setdefault(ranking, []).extend(map(bool, result.values))
            keys = (audit.loaded.id, ranking.selector, ranking.seed, "lerf", rate, cell.edit.size)
            lines.append((*keys, task.name, task.items, result.mean, result.stderr, task.chance))
        asked = []
        for task, measure in _tasks(audit):
            about = (task.source, task.version, ACCURACY, task.items, task.requests_hash, task.chance)
            longest = (*measure.harness.longest(task.task), measure.batch_size)
            asked.append((audit.loaded.id, task.name, *about, *longest, installed_version("lm_eval")))
        tables = {"downstream": frame("downstream", lines), "downstream_tasks": frame("downstream_tasks", asked)}
        pairs = [(audit.loaded.id, *where, *line) for where, answers in right.items() for line in _pairs(answers)]
        return tables | ({"downstream_pairs": frame("downstream_pairs", pairs)} if pairs else {})


def _tasks(audit: AuditInputs) -> list[tuple[DownstreamTask, TaskScores]]:
    def make() -> list[tuple[DownstreamTask, TaskScores]]:
        tasks = downstream_tasks(audit.plan.downstream_tasks, audit.plan.downstream_items)
        harness = Harness(audit.loaded)
        sizes = (audit.plan.scoring.batch_size or harness.batch_size(harness.longest(one.task)[0]) for one in tasks)
        return [(one, TaskScores(harness, one.task, size)) for one, size in zip(tasks, sizes, strict=True)]

    return audit.once("downstream", make)


def _points(audit: AuditInputs) -> Iterator[tuple[Ranking, float, DownstreamTask, Cell[Any]]]:
    for ranking in audit.rankings:
        for rate in sorted(audit.plan.downstream_rates):
            for task, measure in _tasks(audit):
                yield ranking, rate, task, Cell(audit.loaded, ranking.edit("lerf", rate), measure)


def _pairs(answers: dict[Ranking, list[bool]]) -> Iterator[tuple[object, ...]]:
    """answers: of every ranking's mask, is each item answered rightly?"""
    each = [(a, b) for a, b in combinations(answers, 2) if a.selector != b.selector]
    rates = [paired_rates(answers[b], answers[a]) for a, b in each]
    p_holm = adjusted({place: one.mcnemar_p for place, one in enumerate(rates)})
    for place, ((a, b), one) in enumerate(zip(each, rates, strict=True)):
        values = (one.difference, *one.interval, one.mcnemar_p, p_holm[place], one.detectable(LEVEL / len(each)))
        yield (a.selector, a.seed, b.selector, b.seed, one.n, one.no_yes, one.yes_no, *values)
