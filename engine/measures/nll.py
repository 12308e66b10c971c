"""Negative log-likelihood of token windows; perplexity is derived from it when shown."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from engine.data.corpora import Windows
from engine.measures.base import Average, TokenMeasure, register_measure
from engine.measures.predictions import Predictions, of_model
from engine.models.loading import LoadedModel
from engine.records.hashing import Json


class NegativeLogLikelihood(Average):
    """Summed NLL in nats over the predicted tokens of each window."""

    @property
    def window_nats(self) -> tuple[float, ...]:
        return self.sums

    @property
    def window_tokens(self) -> tuple[int, ...]:
        return self.counts

    @property
    def nats_per_token(self) -> float:
        return self.value

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
