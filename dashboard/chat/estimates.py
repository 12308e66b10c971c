"""What the scores of another model take that a live edit lacks: from its shapes, before weights are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.chat.edits import CALIBRATION_WINDOWS, WINDOW_TOKENS
from dashboard.state import access

if TYPE_CHECKING:
    from engine.run.estimate import Estimate


def of_scores(model_id: str, selector: str) -> str:
    """How long the scores that Run computes take, in words.

    `InputError` where the model is not to be had, cannot be estimated, or may not be asked for here.
    """
    from engine.run.audit_plan import AuditPlan
    from engine.run.score_plan import SHIPPED, ScorePlan

    scoring = ScorePlan(selectors=(selector,), corpus=SHIPPED, samples=CALIBRATION_WINDOWS, length=WINDOW_TOKENS)
    access.need("loading a model other than the shipped one")
    from engine.models.loading import load_sketch
    from engine.run.estimate import estimate, flops_per_second
    from engine.run.refusal_plan import default_plan

    sketch = load_sketch(model_id)
    speed = flops_per_second(sketch)
    found = estimate(sketch, AuditPlan(scoring=scoring), default_plan(model_id), ("score",))
    return f"Its scores: {_time(found, speed)}, at most {_memory(found)}."


def _time(found: Estimate, speed: float) -> str:
    """The time of the products alone, as the command `estimate` says it."""
    from engine.run.pace import told

    return f"{told(found.flops / speed)} of matrix products on {found.device}, in truth longer"


def _memory(found: Estimate) -> str:
    from engine.run.fits import GIB

    return f"{found.peak_bytes / GIB:.1f} GiB"
