"""Is a prompt like those that a model was trained on? Only of a model that ships with prompts of its own."""

from __future__ import annotations

from dashboard.chat.live import Entry, fitting_threads
from dashboard.state import shipped

QUANTILE = 0.01  # of the model's own prompts, that count as unlike them


def limit_of(entry: Entry) -> float | None:
    """The `QUANTILE` of `prompt_log_probabilities` of its own held-out prompts, measured once for as long as it is in
    memory; None of a model without any.

    Measured on the demo: -10.8 nats per word; below are none of its 36 example prompts, 18% of the 240 general shipped
    ones, and 3 of the 5 `GENERAL_QUESTIONS`."""
    import numpy as np

    from engine.measures.fluency import prompt_log_probabilities

    if not entry.prompt_limit:
        prompts = shipped.own_prompts(entry.loaded.id)
        with fitting_threads(entry.loaded):
            means = prompt_log_probabilities(entry.loaded, prompts) if prompts else []
        entry.prompt_limit.append(float(np.quantile(means, QUANTILE)) if means else None)
    return entry.prompt_limit[0]


def unlike(entry: Entry, prompt: str) -> str:
    """That a prompt is less likely than the limit, in words; "" where it is not, or where there is none."""
    from engine.measures.fluency import prompt_log_probabilities

    limit = limit_of(entry)
    if limit is None:
        return ""
    with fitting_threads(entry.loaded):
        [mean] = prompt_log_probabilities(entry.loaded, [prompt])
    if mean >= limit:
        return ""
    own, here = (f"{value:.1f}".replace("-", "−") for value in (limit, mean))
    return (
        f"Unlike its training: {here} nats per word as it is, where {1 - QUANTILE:.0%} of its own held-out prompts "
        f"have more than {own}. What it replies says little."
    )
