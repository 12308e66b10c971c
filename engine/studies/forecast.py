"""What studies will take, told before they begin: from the model's shapes, or at the pace of a probe.

Which cells and edits these are, each study says (`Study.expected`, `Study.at_most`)."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.audit_plan import AuditPlan
from engine.run.estimate import SCORE, SWEEP, Estimate, estimate
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Cell, Count, LocalRunner, Results
from engine.studies.base import GROUPS, Study
from engine.studies.conduct import StudyInputs


@dataclass(frozen=True)
class Forecast:
    """cells: distinct ones. edits: further ones under each measure, at most. of: the work of scores and of all these,
    dead neurons not subtracted, with the memory.

    at_least: further cells depend on scores of other texts or on results, so that they cannot be told."""

    cells: int
    edits: int
    at_least: bool
    of: Estimate

    def flops(self, stage: str) -> int:
        """Of the scores (SCORE) or of what is measured (SWEEP)."""
        return sum(one.flops for one in self.of.work if one.stage == stage)


def from_shapes(
    kind: type[StudyInputs], sketch: Callable[[], LoadedModel], plan: Any, names: Sequence[str]
) -> Forecast:
    """What these studies take, before any weight is fetched. What the store knows already is counted too.

    kind: `AuditInputs` or `RefusalInputs`. sketch: makes the model without its weights (`load_sketch`), each call a new
    one. Cells are counted under rankings that are drawn, since how many rows a mask removes does not depend on the
    scores. Errors: InputError where a study cannot be done, or the model cannot be traced by its shapes."""
    first = sketch()
    plan, _ = kind.fitting_plan(first, plan, named=False)
    cells: set[Cell[Any]] = set()
    further: dict[int, tuple[Any, int]] = {}  # of measures that several studies take of the same edits once
    at_least = False
    # A store that nobody keeps: what a study computes of a model without numbers is nothing to be kept.
    with tempfile.TemporaryDirectory() as place, Store(Path(place)) as store:
        inputs = kind.sketched(first, plan, store)
        inputs.draw_scores()
        for study in (info.study() for info in GROUPS[kind.group] if info.id in names):
            study.check(inputs)
            try:
                found = study.expected(inputs, Results())
                at_least |= found.more
                for measure, edits in found.edits:
                    further[id(measure)] = measure, max(edits, further.get(id(measure), (measure, 0))[1])
                for cell in found.cells:
                    cells.add(cell.base or cell)
            except InputError:
                raise
            except (RuntimeError, TypeError, AttributeError, ValueError, LookupError):
                at_least = True  # it asks for scores of other texts, which needs numbers, or for earlier results
    alike: dict[str, list[Cell[Any]]] = {}
    for cell in cells:
        alike.setdefault(cell.measure_key, []).append(cell)
    counted = [*((some[0].measure, len(some)) for some in alike.values()), *further.values()]
    scores = AuditPlan(scoring=kind.scores_of(plan), sweep_rates=())
    work = estimate(sketch(), scores, RefusalPlan(), (SCORE, SWEEP), cells=counted)
    return Forecast(len(cells), max((edits for _, edits in further.values()), default=0), at_least, work)


def at_pace(study: Study[Any], inputs: StudyInputs, runner: LocalRunner) -> tuple[Count, Count]:
    """(cells of edits that are known, those of edits that results choose): counts, and seconds at the pace of a probe.

    The probe is the unedited model's cells among them; there is none where nothing is left to compute. Both are upper
    bounds where results decide (`Study.at_most`); once the first are known, the second are counted stage by stage as
    far as the store knows what a stage depends on."""
    found = study.at_most(inputs, runner.results)
    cells = list(dict.fromkeys(found.cells))
    probe = [cell for cell in cells if not cell.edit.size]
    if runner.count(cells).to_compute:
        runner.probe(probe)
        measures = [measure for measure, edits in found.edits for _ in range(edits)]
        return runner.count(cells), Count(0, len(measures), runner.pace.seconds(measures))
    wanted = dict.fromkeys(cells)
    while new := [cell for cell in study.cells(inputs, runner.results) if cell not in wanted]:
        wanted |= dict.fromkeys(new)
        if runner.count(new).to_compute:
            break
    rest = list(wanted)[len(cells) :]
    if runner.count(rest).to_compute:
        runner.probe(probe)
    return runner.count(cells), runner.count(rest)
