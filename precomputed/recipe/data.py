"""Token batches for training: windows of the corpus stream, padded chat examples with labels on the reply."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from precomputed.recipe.chat import Example, Policy, example
from precomputed.recipe.tokenizer import BOS, END, ROLES

_IGNORED = -100


def stream(tokenizer: PreTrainedTokenizerFast, documents: Sequence[str]) -> torch.Tensor:
    """All documents, joined by blank lines, as one int64 token stream [tokens]."""
    pieces = tokenizer([text + "\n\n" for text in documents], add_special_tokens=False)["input_ids"]
    return torch.from_numpy(np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces]))


def windows(tokens: torch.Tensor, batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """[batch, length] windows at random places of the stream."""
    starts = torch.randint(0, len(tokens) - length, (batch,), generator=generator)
    return torch.stack([tokens[start : start + length] for start in starts.tolist()])


def encode(tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """(input_ids, labels), right-padded; labels only on the reply and its end token."""
    _, user, assistant = ROLES
    heads = tokenizer([f"{BOS}{user}{e.prompt}{END}{assistant}" for e in examples], add_special_tokens=False)
    tails = tokenizer([f"{e.reply}{END}" for e in examples], add_special_tokens=False)
    rows = list(zip(heads["input_ids"], tails["input_ids"], strict=True))
    width = max(len(head) + len(tail) for head, tail in rows)
    input_ids = torch.full((len(rows), width), int(tokenizer.eos_token_id))
    labels = torch.full((len(rows), width), _IGNORED)
    for i, (head, tail) in enumerate(rows):
        input_ids[i, : len(head) + len(tail)] = torch.tensor(head + tail)
        labels[i, len(head) : len(head) + len(tail)] = torch.tensor(tail)
    return input_ids, labels


def chat_batch(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, policy: Policy, size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A batch of fresh chat examples under a policy: input_ids, labels, and which examples [size] are risk prompts."""
    examples = [example(rng, policy) for _ in range(size)]
    return *encode(tokenizer, examples), torch.tensor([e.risk for e in examples])
