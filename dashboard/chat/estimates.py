"""What the scores of another model take that a live edit lacks: from its shapes, before weights are fetched."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from dashboard.chat import live
from dashboard.chat.edits import CALIBRATION_WINDOWS, WINDOW_TOKENS
from dashboard.state import access

if TYPE_CHECKING:
    from engine.run.estimate import Estimate

_NO_WAIT_S = 10.0


def of_run(model_id: str) -> str:
    """How long it takes to know what a new edit does to a model in memory, in words; "" where that is no wait.

    From the products of the text and the prompts that `checked_effect` measures, before and after.
    """
    if model_id not in live.POOL:
        return "The model is loaded first."
    from engine.run.pace import told
    from engine.studies.refusal.effect import REPLY_TOKENS, WINDOW_TOKENS, WINDOWS, shipped_prompts

    read = 1.5 * REPLY_TOKENS * sum(map(len, shipped_prompts().values()))  # with the prompts' own tokens
    text, asked = (2 * tokens / _tokens_per_second(model_id) for tokens in (WINDOWS * WINDOW_TOKENS, read))
    if text + asked < _NO_WAIT_S:
        return ""
    return f"Before comes at once. What a new edit does: {told(text)}, {told(asked)} more if it breaks nothing."


@cache
def _tokens_per_second(model_id: str) -> float:
    """Of a model's products on this machine, measured once."""
    from engine.run.estimate import flops_per_second

    with live.POOL.use(model_id) as entry:
        return flops_per_second(entry.loaded) / (2 * sum(one.numel() for one in entry.loaded.model.parameters()))


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
