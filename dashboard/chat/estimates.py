"""What a live edit takes before its reply: the measurement of what it does, and scores that a model lacks."""

from functools import cache

from dashboard.chat import live
from dashboard.chat.edits import CALIBRATION_WINDOWS, WINDOW_TOKENS
from dashboard.state import estimates
from engine.run.audit_plan import SHIPPED, AuditPlan, ScorePlan

_NO_WAIT_S = 10.0


def of_run(model_id: str) -> str:
    """How long it takes to know what a new edit does to a model in memory, in words; "" where that is no wait.
    From the products of the text and the prompts that `checked_effect` measures, before and after."""
    if model_id not in live.POOL:
        return "The model is loaded first."
    from engine.run.runner import told
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
    `InputError` where the model is not to be had, cannot be estimated, or may not be asked for here."""
    scoring = ScorePlan(selectors=(selector,), corpus=SHIPPED, samples=CALIBRATION_WINDOWS, length=WINDOW_TOKENS)
    return estimates.of_analyses(model_id, AuditPlan(scoring=scoring), ())
