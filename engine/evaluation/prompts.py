"""Prompts as the model sees them at the start of its reply: chat template once, left-padded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from transformers import BatchEncoding, PreTrainedTokenizerBase

from engine.errors import InputError

# Llama 3's templates tell the model the date: here always the one that they fall back on, never today's.
TEMPLATE_DATE = "26 Jul 2024"


class EncodedPrompts(NamedTuple):
    """A left-padded batch, so that position -1 is the last prompt position of every row.

    input_ids, attention_mask, position_ids: int64 [batch, length]. Pads have mask 0 and position 0.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor

    def to(self, device: torch.device) -> EncodedPrompts:
        return EncodedPrompts(*(tensor.to(device) for tensor in self))


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str, reply: str | None = None) -> list[int]:
    """Token ids of one user prompt up to where the reply begins, or, with `reply`, of the dialogue so far.

    With a chat template: one user turn and the generation prompt, tokenised by the template itself, since
    rendering to text and tokenising again gives two BOS. `enable_thinking=False` is a variable that only
    templates with a thinking mode read, `date_string` one of those that state the date. A template that asks the
    clock itself (`strftime_now`) gives other tokens on another day; keys of cells hold `prompts_hash`.
    Without one (base models) the prompt is a line of plain text, and the reply begins on the next line.
    """
    if not prompt.strip():
        raise InputError("a prompt is empty; give it at least one word")
    if not tokenizer.chat_template:
        return list(tokenizer(f"{prompt}\n{reply or ''}")["input_ids"])
    turns = [{"role": "user", "content": prompt}]
    if reply is not None:
        turns.append({"role": "assistant", "content": reply})
    encoded = tokenizer.apply_chat_template(
        turns,
        add_generation_prompt=reply is None,
        tokenize=True,
        return_dict=True,
        enable_thinking=False,
        date_string=TEMPLATE_DATE,
    )
    return list(cast(BatchEncoding, encoded)["input_ids"])


def pad_left(sequences: Sequence[Sequence[int]]) -> EncodedPrompts:
    """Token id lists of different lengths as one batch. The pad id is 0: masked, its embedding is never read."""
    length = max(map(len, sequences))
    input_ids = torch.zeros(len(sequences), length, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for row, ids in enumerate(sequences):
        input_ids[row, length - len(ids) :] = torch.tensor(ids)
        attention_mask[row, length - len(ids) :] = 1
    # The first real token has position 0, as it has without padding.
    position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    return EncodedPrompts(input_ids, attention_mask, position_ids)


def encode_prompts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> EncodedPrompts:
    """`prompt_ids` of every prompt, left-padded to the longest. `InputError` without prompts."""
    if not prompts:
        raise InputError("there are no prompts; give at least one")
    return pad_left([prompt_ids(tokenizer, prompt) for prompt in prompts])


def prompts_hash(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> str:
    """SHA-256 over the token ids of all prompts, as the model sees them: for cache keys."""
    ids = [prompt_ids(tokenizer, prompt) for prompt in prompts]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()
