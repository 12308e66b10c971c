"""What analyses will take, before any weight is fetched: their scores, and the cells that can be told without them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.measures.base import TokenMeasure
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.audit_plan import AuditPlan
from engine.run.cell import Cell
from engine.run.estimate import SCORE, SWEEP, Estimate, estimate
from engine.run.preflight import impossible, remaining
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Results
from engine.run.scoring import Scored
from engine.selectors import get_selector
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import ANALYSES
from engine.studies.conduct import possible


@dataclass(frozen=True)
class Expected:
    """cells: distinct ones. windows: that they read in all, each as long as the plan's evaluation windows.

    at_least: further cells depend on scores of other texts or on results, so that they cannot be told. flops: of
    scores and cells together, dead neurons not subtracted. of: the estimate that the FLOPs come from, with the memory.
    """

    cells: int
    windows: float
    at_least: bool
    flops: float
    of: Estimate


def expected(sketch: Callable[[], LoadedModel], plan: AuditPlan, names: Sequence[str]) -> Expected:
    """What these analyses take. What the store knows already is counted too.

    sketch: makes the model without its weights (`load_sketch`), each call a new one. The cells are counted under
    rankings that are drawn, since how many rows a mask removes does not depend on the scores; only masks that two
    rankings make together (controls) can be alike under the real ones, and are then computed once. FLOPs per cell are
    those of one cell of the sweep on as many tokens.
    Errors: InputError where an analysis cannot be done, or the model cannot be traced by its shapes.
    """
    first = sketch()
    left_out = impossible(first, plan.scoring.selectors)
    selectors = remaining(plan.scoring.selectors, left_out, named=False)
    plan = replace(plan, scoring=replace(plan.scoring, selectors=selectors))
    cells, at_least = _cells(first, plan, names)
    of_windows = sum(_tokens(cell) for cell in cells) / plan.eval_length
    one_cell = replace(plan, sweep_rates=(0.0,), more_interventions=None)
    found = estimate(sketch(), one_cell, RefusalPlan(), (SCORE, SWEEP))
    by_stage = {stage: sum(one.flops for one in found.work if one.stage == stage) for stage in (SCORE, SWEEP)}
    flops = by_stage[SCORE] + by_stage[SWEEP] * of_windows / plan.eval_samples
    return Expected(len(cells), of_windows, at_least, flops, found)


def _cells(sketch: LoadedModel, plan: AuditPlan, names: Sequence[str]) -> tuple[set[Cell[object]], bool]:
    """The cells that can be told, and are there more?"""
    found: set[Cell[object]] = set()
    more = False
    # A store that nobody keeps: what a study computes of a model without numbers is nothing to be kept.
    with tempfile.TemporaryDirectory() as place, Store(Path(place)) as store:
        audit = AuditInputs(sketch, plan, store)
        audit.__dict__["scored"] = _drawn(sketch, plan)  # in the place of the property that computes them
        wanted, _ = possible(audit, [info for info in ANALYSES if info.id in names], skip=False)
        for info in wanted:
            try:
                for cell in info.make(audit).cells(audit, Results()):
                    found.add(cell.base or cell)
            except (RuntimeError, TypeError, AttributeError, ValueError, LookupError):
                more = True  # it asks for scores of other texts, which needs numbers, or for earlier results
    return found, more


def _drawn(sketch: LoadedModel, plan: AuditPlan) -> Scored:
    """Scores of every selector, drawn."""
    seeds, rows = plan.scoring.seeds, sketch.rows.n_rows
    draw = torch.Generator().manual_seed(0)
    scores = {
        name: torch.rand((len(seeds), rows) if get_selector(name).seeded else (rows,), generator=draw)
        for name in plan.scoring.selectors
    }
    return Scored(scores, seeds, {}, 0.0)


def _tokens(cell: Cell[object]) -> int:
    """Tokens of the cell's text; of a measure that reads no windows none are known."""
    measure = cell.measure
    return (
        sum(one.sequences * one.length for one in measure.passes(cell.loaded))
        if isinstance(measure, TokenMeasure)
        else 0
    )
