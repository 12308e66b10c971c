"""Passes over text for `TokenMeasure`s: in batches that fit, in halves where memory runs out, summed over windows."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

import torch
from torch import Tensor

from engine.data.corpora import Windows
from engine.measures.base import TokenMeasure
from engine.measures.less_at_once import in_parts
from engine.measures.predictions import Predictions, kind_of, predictions, sent, sequences_that_fit
from engine.models.loading import LoadedModel, input_device
from engine.models.memory import none_without_memory

R = TypeVar("R")
WINDOWS = "windows"  # what is halved where memory runs out
Sequences = Sequence[tuple[int, int]]  # of a batch: number of the edit, number of the window
Under = Callable[[Sequence[int], Tensor], AbstractContextManager[Any]]  # edits and token ids of a pass -> around it


def windows_that_fit(loaded: LoadedModel, windows: Windows) -> int:
    """As many windows of this length as the budget allows, at least one (`sequences_that_fit`)."""
    return sequences_that_fit(loaded.model, loaded.rows, kind_of(loaded.device), windows.read_ids.shape[1])


def evaluation_batch_size(loaded: LoadedModel, windows: Windows) -> int:
    """From their sizes: the same on every run of a model and device."""
    return min(windows_that_fit(loaded, windows), len(windows.input_ids))


def as_it_is(_edits: Sequence[int], _ids: Tensor) -> AbstractContextManager[Any]:
    """Around a pass of the model as it is."""
    return nullcontext()


@torch.inference_mode()
def token_values(
    loaded: LoadedModel, measure: TokenMeasure[Any], sequences: Sequences, at_once: int, under: Under = as_it_is
) -> list[Tensor]:
    """Values of every predicted token, of each pass [k, sequences, length - 1] on the device: no pass waits for
    another. `at_once` sequences are passed together, or, where memory runs out, halves of them."""

    def passed(batch: Sequences) -> Tensor:
        return values_of(measure, *_predictions(loaded, measure.windows, batch, under))

    batches = (sequences[start : start + at_once] for start in range(0, len(sequences), at_once))
    return [values for batch in batches for _, values in in_parts(loaded.model, WINDOWS, batch, passed)]


@torch.inference_mode()
def values_beside_unedited(
    loaded: LoadedModel, measure: TokenMeasure[Any], edits: int, copies: int, under: Under
) -> list[list[Tensor]]:
    """For each edit what `token_values` gives, with what the unedited model says of the same tokens. Edit 0 of `under`
    is the unedited model. Passes have the same shape, so that an edit of nothing gives equal logits, and hold their
    windows `copies` times however many edits there are, so that equal runs give equal bits."""

    def of_windows(batch: Sequence[int], copies: int) -> list[Tensor]:
        def passed(group: Sequence[int]) -> tuple[list[Predictions], Tensor]:
            sequences = [(edit, window) for edit in group for window in batch]
            said, ids = _predictions(loaded, measure.windows, sequences, under)
            return said.split(len(batch)), ids[: len(batch)]

        unedited = passed([0] * copies)[0][0]
        kept = list(map(measure.of_unedited, unedited.chunks())) if unedited.whole else None
        values: dict[int, Tensor] = {}
        for first in range(1, edits + 1, copies):
            group = [min(first + number, edits) for number in range(copies)]
            by_edit, ids = passed(group)
            for edit, said in dict(zip(group, by_edit, strict=True)).items():
                # Where logits are made in pieces, the unedited model's are made again for each edit.
                beside = map(measure.of_unedited, unedited.chunks()) if kept is None else kept
                values[edit] = values_of(measure, said, ids, beside)
        return list(values.values())

    def fewer_at_once(batch: Sequence[int]) -> list[Tensor]:
        values = none_without_memory(partial(of_windows, batch, copies)) if copies > 1 else None
        return values or of_windows(batch, 1)

    windows, at_once = range(measure.size), evaluation_batch_size(loaded, measure.windows)
    batches = (windows[start : start + at_once] for start in windows[::at_once])
    parts = [values for batch in batches for _, values in in_parts(loaded.model, WINDOWS, batch, fewer_at_once)]
    return [list(of_edit) for of_edit in zip(*parts, strict=True)]


def sums_of(values: Sequence[Tensor]) -> list[list[float]]:
    """[k][windows], of passes over all windows. On the CPU, since not every device (MPS) has float64."""
    return torch.cat(list(values), -2).cpu().double().sum(-1).tolist()


def result_of(measure: TokenMeasure[R], sums: Sequence[Sequence[float]]) -> R:
    """The windows' first tokens are not predicted."""
    count, length = measure.windows.input_ids.shape
    return measure.result(sums, (length - 1,) * count)


def of_model(loaded: LoadedModel, measure: TokenMeasure[R]) -> R:
    """Of the model as it is now, whatever its weights are."""
    sequences = [(0, window) for window in range(measure.size)]
    return result_of(measure, sums_of(token_values(loaded, measure, sequences, batch_of(loaded, measure))))


def batch_of(loaded: LoadedModel, measure: TokenMeasure[Any]) -> int:
    """Windows per pass of the measure."""
    return measure.batch_size or evaluation_batch_size(loaded, measure.windows)


def _predictions(loaded: LoadedModel, windows: Windows, batch: Sequences, under: Under) -> tuple[Predictions, Tensor]:
    """Of one pass, and its token ids [B, T] on the device."""
    ids = windows.read_ids[[window for _, window in batch]]
    with under([edit for edit, _ in batch], ids):
        sent_ids = sent(ids, input_device(loaded.model))
        return predictions(loaded.model, {"input_ids": sent_ids}), sent_ids


def values_of(
    measure: TokenMeasure[Any], said: Predictions, ids: Tensor, unedited: Iterable[Any] | None = None
) -> Tensor:
    """[k, windows, length - 1] of a pass over ids [windows, T]; what stands before the windows does not count."""
    chunks = zip(said.with_chunks(ids[:, 1:]), repeat(None) if unedited is None else unedited, strict=False)
    parts = [measure.of_tokens(logits, tokens, beside) for (logits, tokens), beside in chunks]
    values = torch.cat(parts, -1).view(-1, said.windows, said.positions)
    return values[..., len(measure.windows.prefix) :]
