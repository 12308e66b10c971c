"""What zeroing some rows costs: a short measurement. torch is imported when it is asked for, never before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard.chat.live import fitting_threads
from engine.edits.masks import Mask
from engine.records.locks import held
from engine.stats.blocks import block_difference

if TYPE_CHECKING:
    from engine.data.corpora import Windows
    from engine.measures.nll import NegativeLogLikelihood
    from engine.models.loading import LoadedModel

Progress = Callable[[str, int, int], None]
CORPUS, WINDOWS, WINDOW_TOKENS = "demo", 16, 256
_WINDOWS_AT_ONCE = 4


@dataclass(frozen=True)
class NllChange:
    """NLL in nats per token before and after, and their paired difference with its standard error over blocks of
    windows (`block_difference`)."""

    dense: float
    edited: float
    difference: float
    stderr: float | None
    tokens: int


def nll_change(loaded: LoadedModel, mask: Mask, progress: Progress) -> NllChange:
    """NLL of the model as it is and with the rows of `mask` zeroed, on the same windows, under the model's lock.
    `progress` is called between batches and may raise to give up; the weights are back then."""
    from engine.interventions.in_weights import zeroed

    tokens = evaluation_windows(loaded)
    with held(loaded.lock, lambda _: progress("waiting for another session", 0, 1)), fitting_threads(loaded):
        dense = _nll(loaded, tokens, nullcontext(), progress, "as it is")
        edited = _nll(loaded, tokens, zeroed(loaded, mask), progress, "with the rows zeroed")
    difference = edited.nats_per_token - dense.nats_per_token
    stderr, _ = block_difference(edited, dense)
    return NllChange(dense.nats_per_token, edited.nats_per_token, difference, stderr, dense.tokens)


def evaluation_windows(loaded: LoadedModel, samples: int = WINDOWS) -> Windows:
    """The first windows of the shipped evaluation text, in this model's tokens."""
    from engine.data.corpora import windows

    return windows(CORPUS, loaded.tokenizer, role="evaluation", samples=samples, length=WINDOW_TOKENS)


def _nll(
    loaded: LoadedModel, tokens: Windows, carrying: AbstractContextManager[None], progress: Progress, what: str
) -> NegativeLogLikelihood:
    from engine.measures.nll import NegativeLogLikelihood, negative_log_likelihood

    nats: list[float] = []
    counts: list[int] = []
    with carrying:
        count = len(tokens.sample_ids)
        for start in range(0, count, _WINDOWS_AT_ONCE):
            progress(f"NLL {what}", start, count)
            some = tokens.part(start, min(_WINDOWS_AT_ONCE, count - start))
            batch = negative_log_likelihood(loaded, some, _WINDOWS_AT_ONCE)
            nats += batch.window_nats
            counts += batch.window_tokens
    return NegativeLogLikelihood(tuple(nats), tuple(counts), tokens.blocks)
