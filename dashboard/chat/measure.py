"""What zeroing some rows costs, where rows are active, and which are behind a token: short measurements.

The engine (and with it torch) is imported when one is asked for, never before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dashboard.chat.live import fitting_threads
from engine.records.errors import InputError
from engine.records.locks import held

if TYPE_CHECKING:
    from engine.data.corpora import Windows
    from engine.edits.masks import Mask
    from engine.measures.nll import NegativeLogLikelihood
    from engine.measures.token_rows import TokenRows
    from engine.models.loading import LoadedModel

Progress = Callable[[str, int, int], None]
CORPUS, WINDOWS, WINDOW_TOKENS = "demo", 16, 256
_WINDOWS_AT_ONCE = 4
OUTPUT = "output"
PASSAGES, PASSAGE_TOKENS = 3, 48  # of a row's text
TEXT_TOKENS = 64  # of a text that is attributed token by token: a pass for each


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

    `progress` is called between batches and may raise to give up; the weights are back then.
    """
    from engine.interventions.in_weights import zeroed
    from engine.stats.blocks import block_difference

    tokens = evaluation_windows(loaded)
    with held(loaded.lock, lambda _: progress("waiting for another session", 0, 1)), fitting_threads(loaded):
        dense = _nll(loaded, tokens, nullcontext(), progress, "as it is")
        edited = _nll(loaded, tokens, zeroed(loaded, mask), progress, "with the rows zeroed")
    difference = edited.nats_per_token - dense.nats_per_token
    stderr, _ = block_difference(edited, dense)
    return NllChange(dense.nats_per_token, edited.nats_per_token, difference, stderr, dense.tokens)


def evaluation_windows(loaded: LoadedModel) -> Windows:
    """The first windows of the shipped evaluation text, in this model's tokens."""
    from engine.data.corpora import windows

    return windows(CORPUS, loaded.tokenizer, role="evaluation", samples=WINDOWS, length=WINDOW_TOKENS)


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


@dataclass(frozen=True)
class Passage:
    """Consecutive tokens of one window, counted from 0: what each adds to the text, and its value."""

    window: int
    start: int
    pieces: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class RowInText:
    """One row at every token that counts of the evaluation text. values [tokens]; passages: around the largest ones."""

    values: npt.NDArray[np.float32]
    passages: tuple[Passage, ...]


def row_in_text(loaded: LoadedModel, row_id: int, what: str, progress: Progress) -> RowInText:
    """`row_outputs` or, by an attribution method, `row_relevance` on the evaluation text, and the passages in which it
    is largest in size.

    what: `OUTPUT` or a method. Of relevance the last token of a window does not count: it predicts nothing.
    """
    from engine.measures.row_values import row_outputs, row_relevance

    text = evaluation_windows(loaded)
    progress("Reading the evaluation text", 0, 1)
    with held(loaded.lock, lambda _: progress("waiting for another session", 0, 1)), fitting_threads(loaded):
        if what == OUTPUT:
            found = row_outputs(loaded, text, row_id)
        else:
            found = row_relevance(loaded, text, row_id, method=what)[:, :-1]  # type: ignore[arg-type]
    values = found.numpy()
    return RowInText(values.ravel(), tuple(_passages(loaded, text, values)))


def _passages(loaded: LoadedModel, text: Windows, values: npt.NDArray[np.float32]) -> list[Passage]:
    """Around the largest value in size of each of the windows that have the largest ones. values [windows, tokens]"""
    from engine.measures.token_rows import pieces

    tops = np.abs(values).max(1)
    passages = []
    for window in np.argsort(-tops, kind="stable")[:PASSAGES].tolist():
        middle = int(np.abs(values[window]).argmax())
        start = max(0, min(middle - PASSAGE_TOKENS // 2, values.shape[1] - PASSAGE_TOKENS))
        part = slice(start, start + PASSAGE_TOKENS)
        texts = pieces(loaded.tokenizer, text.input_ids[window, : values.shape[1]][part].tolist())
        passages.append(Passage(window, start, tuple(texts), tuple(values[window, part].tolist())))
    return passages


def behind_tokens(loaded: LoadedModel, text: str, method: str, top: int, progress: Progress) -> TokenRows:
    """`token_rows` of a text as the model's tokenizer cuts it. `InputError` where it has more than `TEXT_TOKENS`."""
    from engine.measures.token_rows import token_rows

    ids = loaded.tokenizer(text, verbose=False)["input_ids"]
    if len(ids) > TEXT_TOKENS:
        raise InputError(
            f"the text has {len(ids)} tokens for this model, at most {TEXT_TOKENS} are attributed; shorten it"
        )
    progress("Attributing each token", 0, len(ids))
    with held(loaded.lock, lambda _: progress("waiting for another session", 0, 1)), fitting_threads(loaded):
        return token_rows(loaded, ids, method=method, top=top)  # type: ignore[arg-type]
