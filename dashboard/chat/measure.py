"""What zeroing some rows costs, and where rows are active: short measurements on the shipped evaluation text.

The engine (and with it torch) is imported when one is asked for, never before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy.typing as npt
import polars as pl

from dashboard.chat.live import fitting_threads
from engine.records.locks import held

if TYPE_CHECKING:
    from engine.data.corpora import Windows
    from engine.edits.masks import Mask
    from engine.measures.nll import NegativeLogLikelihood
    from engine.models.loading import LoadedModel

Progress = Callable[[str, int, int], None]
CORPUS, WINDOWS, WINDOW_TOKENS = "demo", 16, 256
EXAMPLE_ROWS = 24  # at most, so that a table of examples stays readable
_WINDOWS_AT_ONCE = 4


@dataclass(frozen=True)
class NllChange:
    """NLL in nats per token before and after, and their paired difference with its standard error over windows."""

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
    from engine.studies.audit.differences import paired_difference

    tokens = evaluation_windows(loaded)
    with held(loaded.lock, lambda _: progress("waiting for another session", 0, 1)), fitting_threads(loaded):
        dense = _nll(loaded, tokens, nullcontext(), progress, "as it is")
        edited = _nll(loaded, tokens, zeroed(loaded, mask), progress, "with the rows zeroed")
    difference, stderr = paired_difference(edited, dense)
    return NllChange(dense.nats_per_token, edited.nats_per_token, difference, stderr, dense.tokens)


def examples(loaded: LoadedModel, row_ids: npt.ArrayLike, top: int, progress: Progress) -> pl.DataFrame:
    """`row_examples` on the evaluation text."""
    from engine.measures.row_examples import row_examples

    with held(loaded.lock, lambda _: progress("waiting for another session", 0, 1)), fitting_threads(loaded):
        return row_examples(loaded, evaluation_windows(loaded), row_ids, top=top)


def evaluation_windows(loaded: LoadedModel) -> Windows:
    """The first windows of the shipped evaluation text, in this model's tokens."""
    from engine.data.corpora import windows

    return windows(CORPUS, loaded.tokenizer, role="evaluation", samples=WINDOWS, length=WINDOW_TOKENS)


def _nll(
    loaded: LoadedModel, tokens: Windows, carrying: AbstractContextManager[None], progress: Progress, what: str
) -> NegativeLogLikelihood:
    from engine.measures.nll import NegativeLogLikelihood, window_nll

    nats: list[float] = []
    counts: list[int] = []
    with carrying:
        for batch in tokens.input_ids.split(_WINDOWS_AT_ONCE):
            progress(f"NLL {what}", len(nats), len(tokens.input_ids))
            batch_nats, batch_counts = window_nll(loaded.model, batch)
            nats += batch_nats.tolist()
            counts += batch_counts.tolist()
    return NegativeLogLikelihood(tuple(nats), tuple(counts))
