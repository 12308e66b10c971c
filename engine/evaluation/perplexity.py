"""Negative log-likelihood of token windows; perplexity is derived from it when shown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.corpora import Windows
from engine.models import LoadedModel, input_device

LOGIT_BUDGET = {
    "cpu": 16_000_000,
    "cuda": 256_000_000,
}  # elements of logits per batch; the cpu's stays near its cache
LOSS_CHUNK = 4_000_000  # elements of float32 logits under one log-softmax


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """Summed NLL in nats over the predicted tokens of each window.

    `nats_per_token` = sum over windows of nats / sum of tokens. `stderr` is that ratio's standard error
    with windows as the independent units (for windows of equal length: their means' standard deviation
    over sqrt(n)); None for a single window.
    """

    window_nats: tuple[float, ...]
    window_tokens: tuple[int, ...]

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
        n = len(self.window_nats)
        if n < 2:
            return None
        mean = self.nats_per_token
        residuals = (s - mean * t for s, t in zip(self.window_nats, self.window_tokens, strict=True))
        return math.sqrt(math.fsum(r * r for r in residuals) * n / (n - 1)) / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(NLL); infinite where a float64 cannot hold it (above about 709 nats)."""
        return perplexity(self.nats_per_token)


def perplexity(nll_nats: float) -> float:
    """exp(nll), infinite instead of an overflow error."""
    try:
        return math.exp(nll_nats)
    except OverflowError:
        return math.inf


def negative_log_likelihood(
    loaded: LoadedModel, windows: Windows, batch_size: int | None = None
) -> NegativeLogLikelihood:
    """NLL of the loaded model, as its weights are now, on every window.

    Token t is predicted from the tokens before it in its own window; the first token of a window is
    not predicted, so a window of 512 counts 511 tokens. The paper, section 3.4.
    """
    batch = batch_size or evaluation_batch_size(loaded, windows)
    nats: list[float] = []
    tokens: list[int] = []
    for chunk in windows.input_ids.split(batch):
        sums, counts = window_nll(loaded.model, chunk)
        nats += sums.tolist()
        tokens += counts.tolist()
    return NegativeLogLikelihood(tuple(nats), tuple(tokens))


def evaluation_batch_size(loaded: LoadedModel, windows: Windows) -> int:
    """Windows per forward pass, from the size of their logits: the same on every run of a model and device."""
    vocabulary = loaded.model.get_input_embeddings().weight.shape[0]
    budget = LOGIT_BUDGET["cuda" if loaded.device.startswith("cuda") else "cpu"]
    per_window = windows.input_ids.shape[1] * int(vocabulary)
    return int(min(max(1, budget // per_window), len(windows.input_ids)))


@torch.inference_mode()
def window_nll(
    model: nn.Module, input_ids: Tensor, attention_mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Summed NLL and number of predicted tokens of each sequence.

    A position counts if its token is real and the one before it is real, so padding on either side
    changes nothing.

    input_ids [B, T], attention_mask [B, T] of 0/1 or None for no padding
    returns   nats [B] float64, tokens [B] int64, both on the CPU
    """
    device = input_device(model)
    ids = input_ids.to(device)
    inputs: dict[str, Tensor] = {"input_ids": ids}
    real = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    if attention_mask is not None:
        mask = attention_mask.to(device)
        inputs["attention_mask"] = mask
        inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        real = (mask[:, 1:] * mask[:, :-1]).bool()
    logits = model(**inputs, use_cache=False).logits[:, :-1]  # [B, T-1, V]
    nats = token_nll(logits, ids[:, 1:].to(logits.device))  # [B, T-1]
    real = real.cpu()
    # On the CPU, since not every device (MPS) has float64.
    return nats.cpu().double().masked_fill(~real, 0.0).sum(-1), real.sum(-1)


def token_nll(logits: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(logits)[target] in float32, in chunks of positions so that large vocabularies fit.

    logits [B, T, V] any float dtype, targets [B, T]; returns [B, T] float32
    """
    flat, wanted = logits.flatten(0, 1), targets.flatten()
    chunk = max(1, LOSS_CHUNK // flat.shape[-1])
    parts = [
        functional.cross_entropy(some.float(), these, reduction="none")
        for some, these in zip(flat.split(chunk), wanted.split(chunk), strict=True)
    ]
    return torch.cat(parts).view_as(targets)
