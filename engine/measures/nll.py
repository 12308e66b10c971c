"""Negative log-likelihood of token windows; perplexity is derived from it when shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.data.corpora import Windows
from engine.edits.steering import AnyEdit
from engine.interventions.apply import goes_into_weights
from engine.interventions.at_outputs import edited_outputs, sees_sequences
from engine.interventions.compaction import VERSION as COMPACTION, compacted, compacts
from engine.interventions.earlier_blocks import FromFirstEdited
from engine.measures.base import register_measure
from engine.measures.less_at_once import in_parts
from engine.measures.predictions import (
    VERSION as PIECES,
    Predictions,
    in_pieces,
    kind_of,
    predictions,
    sent,
    sequences_that_fit,
)
from engine.models.loading import LoadedModel, input_device
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.stats.blocks import Blocks
from engine.stats.paired import ratio_stderr

EDITS_TOGETHER = 8  # at most, in one pass over little text
WINDOWS = "windows"  # what is halved where memory runs out


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """Summed NLL in nats over the predicted tokens of each window.

    `nats_per_token` = sum over windows of nats / sum of tokens. `stderr` is that ratio's standard error
    with windows as the independent units (for windows of equal length: their means' standard deviation
    over sqrt(n)); None for a single window. blocks: what errors take as units instead (`engine.stats.blocks`), None: by
    the number of windows; they are the text's and are not stored with the result.
    """

    window_nats: tuple[float, ...]
    window_tokens: tuple[int, ...]
    blocks: Blocks | None = field(default=None, compare=False)

    @property
    def total_nats(self) -> float:
        return math.fsum(self.window_nats)

    @property
    def tokens(self) -> int:
        return sum(self.window_tokens)

    @property
    def nats_per_token(self) -> float:
        return self.total_nats / self.tokens

    @property
    def stderr(self) -> float | None:
        return ratio_stderr(self.window_nats, self.window_tokens)

    @property
    def value(self) -> float:
        return self.nats_per_token

    @property
    def perplexity(self) -> float:
        """exp(NLL); infinite where a float64 cannot hold it (above about 709 nats)."""
        return perplexity(self.nats_per_token)


@dataclass(frozen=True)
class Nll:
    """The measure: NLL of every window. Neurons that an edit in the weights kills are skipped, and attention that it
    makes idle (`engine.interventions.compaction`); the key says so, since it can change the last bits. It also says
    where logits are made in pieces of positions (`engine.measures.predictions`): where those of two windows are beyond
    the budget.
    """

    windows: Windows
    batch_size: int | None = None  # windows per pass; None: from the size of their logits
    kind: ClassVar[str] = "nll"
    from_first_edited: ClassVar[bool] = True  # a runner may let its passes begin there

    @property
    def size(self) -> int:
        """Windows to read."""
        return len(self.windows.sample_ids)

    def record(self, loaded: LoadedModel) -> Json:
        return {
            "tokens": self.windows.token_hash,
            "batch_size": self._batch(loaded),
            "compaction": COMPACTION if compacts(loaded) else None,
            **pieces_record(loaded, self.windows),
        }

    def encode(self, result: NegativeLogLikelihood) -> Json:
        return {"window_nats": result.window_nats, "window_tokens": result.window_tokens}

    def decode(self, stored: Json) -> NegativeLogLikelihood:
        sums, tokens = tuple(map(float, stored["window_nats"])), tuple(map(int, stored["window_tokens"]))
        return NegativeLogLikelihood(sums, tokens, self.windows.blocks)

    def together(self, loaded: LoadedModel) -> int:
        """Little text only: as many edits as fill a pass; else the weights, where dead neurons cost nothing."""
        if not sees_sequences(loaded):
            return 1
        fit = windows_that_fit(loaded, self.windows) // len(self.windows.input_ids)
        return max(1, min(fit, EDITS_TOGETHER))

    def measure(self, loaded: LoadedModel, edit: AnyEdit) -> NegativeLogLikelihood:
        in_weights = goes_into_weights(edit)  # else no neuron is dead
        with compacted(loaded) if in_weights else nullcontext():
            passes = FromFirstEdited(loaded, [edit], compacted=in_weights)
            result = negative_log_likelihood(loaded, self.windows, self._batch(loaded), passes)
        return _checked(loaded, edit, result)

    def measure_each(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[NegativeLogLikelihood]:
        count, together = len(self.windows.input_ids), self.together(loaded)
        # A pass has the same shape however many edits are still unknown, so that equal runs give equal bits.
        which = [(min(number, len(edits) - 1), window) for number in range(together) for window in range(count)]
        passes = FromFirstEdited(loaded, edits)
        with edited_outputs(loaded, edits) as outputs:

            def passed(some: Sequence[tuple[int, int]]) -> Tensor:
                ids = self.windows.read_ids[[window for _, window in some]]
                with outputs.sequences([edit for edit, _ in some]), passes.over(ids):
                    return _token_nats(loaded.model, ids)[:, len(self.windows.prefix) :]

            parts = [found for _, found in in_parts(loaded.model, WINDOWS, which, passed)]
        sums, tokens = _summed(parts)
        found = []
        for number, edit in enumerate(edits):
            part = slice(number * count, (number + 1) * count)
            result = NegativeLogLikelihood(tuple(sums[part]), tuple(tokens[part]), self.windows.blocks)
            found.append(_checked(loaded, edit, result))
        return found

    def _batch(self, loaded: LoadedModel) -> int:
        return self.batch_size or evaluation_batch_size(loaded, self.windows)


@register_measure("nll", title="Negative log-likelihood", unit="nats per token")
def nll(windows: Windows, batch_size: int | None) -> Nll:
    """Nats per predicted token; perplexity is derived from it."""
    return Nll(windows, batch_size)


def _checked(loaded: LoadedModel, edit: AnyEdit, result: NegativeLogLikelihood) -> NegativeLogLikelihood:
    """A model that breaks under an edit may say NaN; one that does so unedited, or in float16, was not measured."""
    if math.isfinite(result.nats_per_token) or (edit.size and loaded.dtype != "float16"):
        return result
    raise InputError(
        f"{loaded.id} gives no finite perplexity with {edit.size:,} rows removed ({loaded.dtype}); "
        + ("check the model's weights" if loaded.dtype == "float32" else "run again with --dtype bfloat16 or float32")
    )


def perplexity(nll_nats: float) -> float:
    """exp(nll), infinite instead of an overflow error."""
    try:
        return math.exp(nll_nats)
    except OverflowError:
        return math.inf


def negative_log_likelihood(
    loaded: LoadedModel, windows: Windows, batch_size: int | None = None, passes: FromFirstEdited | None = None
) -> NegativeLogLikelihood:
    """NLL of the loaded model, as its weights are now, on every window.

    Token t is predicted from the tokens before it in its own window and from what stands before the window; the first
    token of a window is not predicted, with a BOS before it either, so a window of 512 counts 511 tokens. The paper,
    section 3.4. A batch that finds no memory is passed in halves. passes: where they may begin, None for the first
    block.
    """
    sums, tokens = _summed(nats_of_tokens(loaded, windows, batch_size, passes))
    return NegativeLogLikelihood(tuple(sums), tuple(tokens), windows.blocks)


def nats_of_tokens(
    loaded: LoadedModel, windows: Windows, batch_size: int | None = None, passes: FromFirstEdited | None = None
) -> list[Tensor]:
    """Of each batch the NLL of every predicted token, [b, length - 1] float32 on its device: no batch waits for
    another."""
    batch = batch_size or evaluation_batch_size(loaded, windows)

    def passed(some: Sequence[int]) -> Tensor:
        ids = windows.read_ids[some[0] : some[-1] + 1]
        with passes.over(ids) if passes is not None else nullcontext():
            return _token_nats(loaded.model, ids)[:, len(windows.prefix) :]

    numbers = range(len(windows.input_ids))
    parts = (in_parts(loaded.model, WINDOWS, numbers[start : start + batch], passed) for start in numbers[::batch])
    return [nats for batches in parts for _, nats in batches]


def _summed(batches: Sequence[Tensor]) -> tuple[list[float], list[int]]:
    """Nats and tokens of each window. On the CPU, since not every device (MPS) has float64."""
    sums = [nats.cpu().double().sum(-1) for nats in batches]
    tokens = [nats.shape[1] for nats in batches for _ in nats]
    return [one for some in sums for one in some.tolist()], tokens


def evaluation_batch_size(loaded: LoadedModel, windows: Windows) -> int:
    """Windows per forward pass, from their sizes: the same on every run of a model and device."""
    return min(windows_that_fit(loaded, windows), len(windows.input_ids))


def windows_that_fit(loaded: LoadedModel, windows: Windows) -> int:
    """As many windows of this length as the budget allows, at least one (`sequences_that_fit`)."""
    return sequences_that_fit(loaded.model, loaded.rows, kind_of(loaded.device), windows.read_ids.shape[1])


def pieces_record(loaded: LoadedModel, windows: Windows) -> Json:
    """For the keys of what is measured with logits in pieces; empty where they are made at once."""
    pieces = in_pieces(loaded.model, kind_of(loaded.device), windows.read_ids.shape[1])
    return {"logits_in_pieces": PIECES} if pieces else {}


@torch.inference_mode()
def window_nll(model: nn.Module, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Summed NLL and number of predicted tokens of each sequence.

    A position counts if its token is real and the one before it is real, so padding on either side changes nothing.

    input_ids [B, T], attention_mask [B, T] of 0/1 or None for no padding
    returns   nats [B] float64, tokens [B] int64, both on the CPU
    """
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
        nats = _token_nats(model, input_ids)
    else:
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        nats = _token_nats(model, input_ids, attention_mask=attention_mask, position_ids=positions)
    real = (attention_mask[:, 1:] * attention_mask[:, :-1]).bool().cpu()
    # On the CPU, since not every device (MPS) has float64.
    return nats.cpu().double().masked_fill(~real, 0.0).sum(-1), real.sum(-1)


@torch.inference_mode()
def _token_nats(model: nn.Module, input_ids: Tensor, **more: Tensor) -> Tensor:
    """NLL of every token but the first, [B, T - 1] float32 on the device, which is not waited for."""
    device = input_device(model)
    inputs = {name: sent(values, device) for name, values in {"input_ids": input_ids, **more}.items()}
    return predicted_nll(predictions(model, inputs), inputs["input_ids"][:, 1:])


def token_nll(logits: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(logits)[target] in float32, in chunks of positions so that large vocabularies fit.

    logits [B, T, V] any float dtype, targets [B, T]; returns [B, T] float32
    """
    return predicted_nll(Predictions(logits, logits.shape[-1], None, 0), targets)


def predicted_nll(said: Predictions, targets: Tensor) -> Tensor:
    """`token_nll` of predictions whose logits may come in pieces. targets [B, T]; returns [B, T] float32."""
    parts = [
        functional.cross_entropy(some.float(), these, reduction="none") for some, these in said.with_chunks(targets)
    ]
    return torch.cat(parts).view_as(targets)
