"""A try is written: its rows, what they do to refusal, its replies, and what its model's own replies look like."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from dashboard.chat import edits, effects, live
from dashboard.chat.live import Entry, Event, Outcome, Piece, Side, SideName, fitting_threads
from dashboard.chat.tries import Try
from dashboard.state import shipped
from engine.edits.edit import mask_hash
from engine.edits.masks import Mask
from engine.records.locks import OnWait, patient

Progress = Callable[[str, int, int], None]
Masks = tuple[Mask, Mask | None]
QUANTILE = 0.01  # of the model's own prompts, that count as unlike them
KEPT = 500  # replies of a model
NO_ROWS: Mask = np.zeros(0, dtype=np.int64)


def batches(
    now: Try, entry: Entry, wanted: Sequence[Side], progress: Progress
) -> Iterator[tuple[Masks, tuple[Side, ...]]]:
    """What to write, in turn: Before at once, After and the control once it is known what the edit does.
    `InputError` where the edit lowers refusal: then neither of these is written."""
    if "before" in wanted:
        yield (NO_ROWS, None), ("before",)
        now.unlike = unlike(entry, now.request.prompt)
    seed = now.request.control_seed
    mask = edits.mask_of(entry, now.request.edit, scoring(progress))
    now.removed = edits.removed_per_projection(entry, mask)
    now.mask_sha256, now.model = mask_hash(mask), dict(entry.loaded.fingerprint)
    control = edits.control_of(entry, mask, seed) if "control" in wanted and seed is not None else None
    edited: tuple[Side, ...] = tuple(side for side in wanted if side != "before")
    if edited:
        effect = effects.checked_effect(entry, mask, now.request.edit, progress)
        now.effect = effects.in_words(effect)
        now.broken = effect.on_text() if effect.broken else ""
        now.control_seed = seed if control is not None else now.control_seed
        yield (mask, control), edited


def scoring(progress: Progress) -> Progress:
    """`progress` of the scores that an edit may need first."""
    return lambda what, done, total: progress(f"Computing scores for this model: {what}", done, total)


def replies(
    now: Try, entry: Entry, masks: Masks, sides: Sequence[Side], on_wait: OnWait = patient
) -> Generator[Event, None, None]:
    request, removed = now.request, {"before": NO_ROWS, "after": masks[0], "control": masks[1]}
    carried = {side: removed[side] for side in sides}
    return batch(entry, carried, request.prompt, request.reply_tokens, margins=request.margins, on_wait=on_wait)


def batch(
    entry: Entry, removed: Mapping[SideName, Mask | None], prompt: str, tokens: int, *, margins: bool = False,
    on_wait: OnWait = patient,
) -> Generator[Piece[SideName] | Outcome[SideName], None, None]:  # fmt: skip
    """The replies to a prompt without these rows: those that the model gave before at once, the others as they are
    written, in one batch."""
    sides = {side: (rows, mask_hash(rows)) for side, rows in removed.items() if rows is not None}
    keys = {side: (hashed, prompt, tokens, margins) for side, (_, hashed) in sides.items()}
    for side, key in keys.items():
        if key in entry.outcomes:
            yield Piece(side, entry.outcomes[key].text)
            yield replace(entry.outcomes[key], side=side)
    missing = {side: rows for side, (rows, _) in sides.items() if keys[side] not in entry.outcomes}
    if not missing:
        return
    with closing(
        live.replies(entry.loaded, missing, prompt, tokens, margins_along=margins, likelihoods=True, on_wait=on_wait)
    ) as events:
        for event in events:
            if isinstance(event, Outcome):
                entry.outcomes[keys[event.side]] = event
            yield event
    for old in list(entry.outcomes)[: max(0, len(entry.outcomes) - KEPT)]:
        entry.outcomes.pop(old, None)


def limit_of(entry: Entry) -> float | None:
    """The `QUANTILE` of `prompt_log_probabilities` of its own held-out prompts, measured once for as long as it is in
    memory; None of a model without any.
    Measured on the demo: -10.8 nats per word; below are none of its 36 example prompts, 18% of the 240 general shipped
    ones, and 3 of the 5 `GENERAL_QUESTIONS`."""
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
