"""A refusal run on the shipped model with few prompts, and on it a count of what was generated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.evaluation.judges import EmbeddedJudge
from engine.models import LoadedModel
from engine.refusal import run as run_module
from engine.refusal.plan import RefusalPlan, demo_plan
from engine.refusal.run import RefusalRun
from engine.scores import ScorePlan
from engine.store import Store


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
        control_seeds=(42, 43),
    )
    return replace(plan, **changes)


def small_run(demo: LoadedModel, store: Store, **changes: Any) -> RefusalRun:
    return RefusalRun(demo, small_plan(**changes), store, EmbeddedJudge())


def count_generations(monkeypatch: pytest.MonkeyPatch, fail_at: int | None = None) -> list[int]:
    """Numbers of prompts of every batch that is generated from now on; the `fail_at`-th raises an interrupt."""
    generated: list[int] = []
    real = run_module.generate_batch

    def counting(loaded: Any, prompts: Any, *args: Any) -> Any:
        if fail_at is not None and len(generated) == fail_at:
            raise KeyboardInterrupt
        generated.append(len(prompts))
        return real(loaded, prompts, *args)

    monkeypatch.setattr(run_module, "generate_batch", counting)
    return generated
