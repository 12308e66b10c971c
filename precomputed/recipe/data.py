"""Token batches for training: padded chat examples with labels on the reply."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerFast

from precomputed.recipe.chat import Example, Policy, example
from precomputed.town.data import IGNORED
from precomputed.town.tokenizer import BOS, END, ROLES


def encode(tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """(input_ids, labels), right-padded; labels only on the reply and its end token."""
    _, user, assistant = ROLES
    heads = tokenizer([f"{BOS}{user}{e.prompt}{END}{assistant}" for e in examples], add_special_tokens=False)
    tails = tokenizer([f"{e.reply}{END}" for e in examples], add_special_tokens=False)
    rows = list(zip(heads["input_ids"], tails["input_ids"], strict=True))
    width = max(len(head) + len(tail) for head, tail in rows)
    input_ids = torch.full((len(rows), width), int(tokenizer.eos_token_id))
    labels = torch.full((len(rows), width), IGNORED)
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
