"""Sampled replies: which token a random number picks, and where the numbers of one reply come from."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.data.prompts import Prompt, user_turns
from engine.records.errors import InputError
from engine.records.hashing import Json


@dataclass(frozen=True)
class Sampling:
    """Tokens drawn from softmax(logits / temperature), all of the vocabulary (no top-k, no top-p). sample: which of
    several replies to the same prompt, from 0.

    Each reply has its own generator, made of seed, sample and the text of the user's turns, one number per token:
    before and after an edit the same numbers are used (common random numbers), and in float32 other neighbours change a
    reply only where a number falls within rounding of the border of two tokens."""

    temperature: float
    seed: int = 0
    sample: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise InputError(f"the temperature must be above 0, got {self.temperature:g}; greedy replies need none")
        if self.seed < 0 or self.sample < 0:
            raise InputError(f"seed and sample must be 0 or more, got {self.seed} and {self.sample}")

    def record(self, prompts: Sequence[Prompt]) -> Json:
        """For cache keys: with the texts that the numbers are made of, which token ids need not tell apart."""
        texts = json.dumps([user_turns(prompt) for prompt in prompts])
        own = {"temperature": self.temperature, "seed": self.seed, "sample": self.sample}
        return {**own, "texts": hashlib.sha256(texts.encode()).hexdigest()}

    def numbers(self, prompt: Prompt) -> np.random.Generator:
        """The generator of one reply; its `random()` gives the number of the next token."""
        text = json.dumps([self.seed, self.sample, *user_turns(prompt)])
        return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16])))


def drawn(logits: Tensor, temperature: float, numbers: Sequence[float]) -> Tensor:
    """The first token whose cumulated probability exceeds its row's number: the inverse of the distribution function.
    logits [B, V] any float dtype; numbers: one in [0, 1) per row; returns int64 [B]. Probabilities are those of
    softmax(logits / temperature), in float64, cumulated in the order of token ids."""
    if logits.device.type == "mps":  # has no float64
        logits = logits.cpu()
    cumulated = torch.softmax(logits.double() / temperature, dim=-1).cumsum(dim=-1)
    wanted = torch.tensor(numbers, dtype=torch.float64, device=cumulated.device)[:, None] * cumulated[:, -1:]
    return torch.searchsorted(cumulated, wanted, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
