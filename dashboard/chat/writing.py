"""A try is written: its rows, what they do to refusal, its replies, and what its model's own replies look like."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dashboard.chat import edits, effects, live, own_prompts, tries
from dashboard.chat.live import Entry, Event, Side
from dashboard.chat.tries import Try
from engine.records.locks import OnWait, patient

if TYPE_CHECKING:
    from engine.edits.masks import Mask

Progress = Callable[[str, int, int], None]
Masks = tuple["Mask", "Mask | None"]
NO_ROWS: Mask = np.zeros(0, dtype=np.int64)


def batches(
    now: Try, entry: Entry, wanted: Sequence[Side], progress: Progress
) -> Iterator[tuple[Masks, tuple[Side, ...]]]:
    """What to write, in turn: Before at once, After and the control once it is known what the edit does.

    `InputError` where the edit lowers refusal: then neither of these is written.
    """
    if "before" in wanted:
        yield (NO_ROWS, None), ("before",)
        now.unlike = own_prompts.unlike(entry, now.request.prompt)
    seed = now.request.control_seed
    mask = edits.mask_of(entry, now.request.edit, scoring(progress))
    now.removed = edits.removed_per_projection(entry, mask)
    now.mask_sha256, now.model = tries.mask_hash(mask), dict(entry.loaded.fingerprint)
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
    """The replies of these sides as they are written: one batch."""
    request = now.request
    return live.replies(
        entry.loaded, masks[0], request.prompt, request.reply_tokens, sides=sides, control=masks[1],
        margins_along=request.margins, likelihoods=True, on_wait=on_wait,
    )  # fmt: skip
