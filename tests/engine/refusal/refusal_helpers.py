"""A refusal run on the shipped model with few prompts, and on it a count of what was generated."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pytest

from engine.commands.refusal.run import STAGES_OF_RUN
from engine.judges.base import Exchange, Verdict
from engine.judges.embedded import EmbeddedJudge
from engine.measures.replies import Replies
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.audit_plan import ScorePlan
from engine.run.refusal_plan import RefusalPlan, demo_plan
from engine.run.runner import Cell, LocalRunner
from engine.studies.base import STAGES, Tables, conduct
from engine.studies.conduct import run_studies
from engine.studies.refusal.grid import Grid
from engine.studies.refusal.operating_point import OperatingPoint
from engine.studies.refusal.points import Chosen
from engine.studies.refusal.refusal_inputs import Rates, RefusalInputs

R = TypeVar("R")
WORDS = ["cat", "dog", "sat", "ran", "here", "there", "mat", "out", "sorry", "sure", "no", "way", "then"]


class ThirdJudge:
    """Refuses by the number of characters: about a third of what a random model writes."""

    id, version = "third", "1"

    def judge(self, exchanges: Sequence[Exchange], progress: Any = None) -> list[Verdict]:
        return [Verdict(len(one.reply) % 3 == 0, "") for one in exchanges]


def write_pairs(path: Path) -> str:
    """Five and nine calibration pairs of two domains of our own, and four held-out ones of each."""
    lines = []
    for domain, calibration, seed in (("mats", 5, 0), ("cups", 9, 11)):
        generator = np.random.default_rng(seed)
        for split, count in (("calibration", calibration), ("heldout", 4)):
            for _ in range(count):
                risk, base = (" ".join(generator.choice(WORDS, size)) for size in (5, 4))
                lines.append({"risk": f"Sorry {risk}", "base": f"Sure {base}", "domain": domain, "split": split})
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


def small_plan(**changes: Any) -> RefusalPlan:
    """Four pairs of two domains, two short windows, one lambda and two ks."""
    plan = replace(
        demo_plan(),
        selectors=("lrp", "random"),
        domains=("hate", "crime"),
        calibration_pairs=4,
        heldout_pairs=3,
        scoring=ScorePlan(corpus="demo", samples=4, length=32),
        eval_samples=2,
        eval_length=64,
        lambdas=(0.2, 0.8),
        ks=(0.01, 0.03),
        reply_tokens=8,
        longer_replies=1,  # eight tokens leave much open
        control_seeds=(42, 43),
    )
    return replace(plan, **changes)


def small_run(demo: LoadedModel, store: Store, **changes: Any) -> RefusalInputs:
    return RefusalInputs(demo, small_plan(**changes), store, EmbeddedJudge())


def tables_of(study: Any, run: RefusalInputs) -> Tables:
    """All tables of one stage."""
    return conduct(study, run, LocalRunner(run.store, run.progress))


def run_stage(study: Any, run: RefusalInputs, runner: LocalRunner, folder: Path) -> Tables:
    """The tables of a study, written as those of the stage that it is the study of, else of one of edits."""
    tables = conduct(study, run, runner)
    stage = {"Measured": "evaluate", "Controlled": "control"}.get(type(study).__name__, "select")
    run.write(folder, STAGES.get(stage), study, tables, runner.results, 0.0)
    return tables


def run_experiment(run: RefusalInputs, folder: Path, runner: LocalRunner, *also: str) -> Any:
    """All stages of `refusal run`, and further ones."""
    return run_studies(run, (*STAGES_OF_RUN, *also), folder, runner, makers={"sweep": Chosen})


def points_of(run: RefusalInputs) -> dict[tuple[str, str], OperatingPoint | None]:
    """What the search of the grid gives, by selector and domain."""
    grid, runner = Grid(run, run.contrasts, run.calibration), LocalRunner(run.store, run.progress)
    conduct(grid, run, runner)
    points = grid.points(run, runner.results)
    assert points is not None
    return dict(points)


def swept(run: RefusalInputs, contrasts: Any = None, pairs: Any = None) -> pl.DataFrame:
    """The grid on the calibration pairs."""
    study = Grid(run, contrasts or run.contrasts, pairs or run.calibration)
    return tables_of(study, run)["refusal_sweep"]


def answer(run: RefusalInputs, cell: Cell[R]) -> R:
    """The result of one cell."""
    return LocalRunner(run.store).run([cell])[cell]


def rates(run: RefusalInputs, mask: Any, pairs: Any) -> Rates:
    """Refusal of both sides of pairs with these rows removed."""
    edit = run.edit(np.asarray(mask, dtype=np.int64))
    return run.rates(LocalRunner(run.store).run([run.on_pairs(edit, pairs)]), edit, pairs)


def count_generations(monkeypatch: pytest.MonkeyPatch, fail_at: int | None = None) -> list[int]:
    """Numbers of edits whose replies are generated together, from now on; the `fail_at`-th raises an interrupt."""
    generated: list[int] = []

    def count(edits: int) -> None:
        if fail_at is not None and len(generated) == fail_at:
            raise KeyboardInterrupt
        generated.append(edits)

    one, several = Replies.measure, Replies.measure_each
    monkeypatch.setattr(Replies, "measure", lambda self, *given: count(1) or one(self, *given))
    monkeypatch.setattr(
        Replies, "measure_each", lambda self, loaded, edits: count(len(edits)) or several(self, loaded, edits)
    )
    return generated
