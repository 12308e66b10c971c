"""What a refusal experiment will measure, before it does: exact for the grid, at most for what depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.edits.edit import UNEDITED
from engine.run.cell import Cell
from engine.run.runner import Count, LocalRunner
from engine.studies.refusal import specificity
from engine.studies.refusal.inputs import RefusalInputs
from engine.studies.refusal.points import Controlled


def forecast(run: RefusalInputs, runner: LocalRunner) -> tuple[Count, Count]:
    """(the grid, the points on held-out pairs with their controls): counts, and seconds at the pace of a probe.

    The probe is the unedited model on the evaluation text and on the calibration pairs of each domain, which the grid
    needs anyway; there is none where nothing is left to compute. Of a grid that is not known the counts are upper
    bounds: cells above the perplexity cap are not answered, a selector may have no point, and what the store knows of
    the points cannot be told before they are chosen. A widened grid, composed masks, further prompts and tasks come on
    top.
    """
    study = Controlled(run)
    probe: list[Cell[Any]] = [run.nll(UNEDITED), *(run.on_pairs(UNEDITED, pairs) for pairs in run.calibration.values())]
    swept = list(dict.fromkeys([*probe, *_grid(run, study)]))
    if not runner.count(swept).to_compute:
        rest = _beyond(run, runner, study, swept)
        if runner.count(rest).to_compute:
            runner.probe(probe)
        return runner.count(swept), runner.count(rest)
    runner.probe(probe)
    measures = list(_of_points(run))
    return runner.count(swept), Count(0, len(measures), runner.pace.seconds(measures))


def _grid(run: RefusalInputs, study: Controlled) -> Iterator[Cell[Any]]:
    for place in study.grid.places:
        yield run.nll(place.edit)
        yield run.on_pairs(place.edit, run.calibration[place.domain])


def _beyond(run: RefusalInputs, runner: LocalRunner, study: Controlled, swept: Sequence[Cell[Any]]) -> list[Cell[Any]]:
    """What the study wants besides the grid, stage by stage as far as the store knows what a stage depends on."""
    wanted = dict.fromkeys(swept)
    while new := [cell for cell in study.cells(run, runner.results) if cell not in wanted]:
        wanted |= dict.fromkeys(new)
        if runner.count(new).to_compute:
            break
    return list(wanted)[len(swept) :]


def _of_points(run: RefusalInputs) -> Iterator[Any]:
    """The measures that are taken of every point: of its edit and of each of its controls."""
    kinds = (specificity.LAYER_MATCHED, specificity.GLOBAL)
    for contrast in run.contrasts:
        for _ in range(1 + len(kinds) * len(run.plan.control_seeds)):
            yield run.nll(UNEDITED).measure
            yield run.on_pairs(UNEDITED, run.heldout[contrast.domain]).measure.base
