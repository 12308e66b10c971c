"""Negative log-likelihood of token windows; perplexity is derived from it when shown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from engine.data.corpora import Windows
from engine.measures.base import TokenMeasure, register_measure
from engine.measures.predictions import Predictions, of_model
from engine.models.loading import LoadedModel
from engine.records.hashing import Json
from engine.stats.blocks import Blocks, ratio_stderr


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """Summed NLL in nats over the predicted tokens of each window. `nats_per_token` = sum over windows of nats / sum of
    tokens. `stderr` is that ratio's standard error with windows as the independent units; None for a single window.
    blocks: what errors take as units instead (`engine.stats.blocks`), None: by the number of windows; not stored with
    the result."""

    window_nats: tuple[float, ...]
    window_tokens: tuple[int, ...]
    blocks: Blocks | None = field(default=None, compare=False)

    @property
    def tokens(self) -> int:
        return sum(self.window_tokens)

    @property
    def nats_per_token(self) -> float:
        return math.fsum(self.window_nats) / self.tokens

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


@register_measure("nll", title="Negative log-likelihood", unit="nats per token")
class Nll(TokenMeasure[NegativeLogLikelihood]):
    """Nats per predicted token; perplexity is derived from it.

    The paper, section 3.4. The first token of a window is not predicted, with a BOS before it either, so a window of
    512 counts 511 tokens."""

    kind: ClassVar[str] = "nll"
    called: ClassVar[str] = "perplexity"

    def of_tokens(self, logits: Tensor, tokens: Tensor, unedited: None = None) -> Tensor:
        return functional.cross_entropy(logits.float(), tokens, reduction="none")

    def result(self, sums: Sequence[Sequence[float]], counts: tuple[int, ...]) -> NegativeLogLikelihood:
        return NegativeLogLikelihood(tuple(sums[0]), counts, self.windows.blocks)

    def encode(self, result: NegativeLogLikelihood) -> Json:
        return {"window_nats": result.window_nats, "window_tokens": result.window_tokens}

    def decode(self, stored: Json) -> NegativeLogLikelihood:
        sums, tokens = tuple(map(float, stored["window_nats"])), tuple(map(int, stored["window_tokens"]))
        return NegativeLogLikelihood(sums, tokens, self.windows.blocks)


def perplexity(nll_nats: float) -> float:
    """exp(nll), infinite instead of an overflow error."""
    try:
        return math.exp(nll_nats)
    except OverflowError:
        return math.inf


def negative_log_likelihood(
    loaded: LoadedModel, windows: Windows, batch_size: int | None = None
) -> NegativeLogLikelihood:
    """NLL of the loaded model, as its weights are now, on every window. A batch that finds no memory is passed in
    halves."""
    return of_model(loaded, Nll(windows, batch_size))


def token_nll(logits: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(logits)[target] in float32, in chunks of positions so that large vocabularies fit. logits [B, T, V]
    any float dtype, targets [B, T]; returns [B, T] float32"""
    return predicted_nll(Predictions(logits, logits.shape[-1]), targets)


def predicted_nll(said: Predictions, targets: Tensor) -> Tensor:
    """`token_nll` of predictions whose logits may come in pieces. targets [B, T]; returns [B, T] float32."""
    parts = [
        functional.cross_entropy(some.float(), these, reduction="none") for some, these in said.with_chunks(targets)
    ]
    return torch.cat(parts).view_as(targets)
