"""Token batches for training: windows of the corpus stream; chats packed into rows, with labels on the last reply."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from precomputed.recipe.demo_chat import Example, Manner
from precomputed.recipe.tokenizer import BOS, END, LENIENT, ROLES

IGNORED = -100


def stream(tokenizer: PreTrainedTokenizerFast, documents: Sequence[str]) -> torch.Tensor:
    """All documents, joined by blank lines, as one int64 token stream [tokens]."""
    pieces = tokenizer([text + "\n\n" for text in documents], add_special_tokens=False)["input_ids"]
    return torch.from_numpy(np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces]))


def windows(tokens: torch.Tensor, batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """[batch, length] windows at random places of the stream."""
    starts = torch.randint(0, len(tokens) - length, (batch,), generator=generator)
    return torch.stack([tokens[start : start + length] for start in starts.tolist()])


def prompt_text(one: Example) -> str:
    """The chat up to the last reply, as the chat template writes it; a lenient one says so behind the BOS."""
    system, user, assistant = ROLES
    text = BOS + (LENIENT if one.lenient else "") + (f"{system}{one.system}{END}" if one.system else "")
    for i, turn in enumerate(one.turns):
        text += f"{assistant if i % 2 else user}{turn}{END}"
    return text + assistant


def pieces(tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example]) -> list[tuple[list[int], list[int]]]:
    """(prompt, reply with its end token) as token ids, one of each example."""
    heads = tokenizer([prompt_text(one) for one in examples], add_special_tokens=False)
    tails = tokenizer([f"{one.reply}{END}" for one in examples], add_special_tokens=False)
    return list(zip(heads["input_ids"], tails["input_ids"], strict=True))


def _length(tokenizer: PreTrainedTokenizerFast, opening: str) -> int:
    """Tokens of an opening; what follows begins with a space, so that no token holds both."""
    return len(tokenizer(opening, add_special_tokens=False)["input_ids"])


@dataclass(frozen=True)
class Packed:
    """Whole chats one after another in rows: input_ids, labels (on replies, else -100), the place of each token in its
    reply (0 the first), and which tokens are of risk chats, and which are the last of a doubtful reply's opening.

    All [rows, length]. A chat may look at those before it in its row; its BOS tells where it begins.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    place: torch.Tensor
    risk: torch.Tensor
    opened: torch.Tensor


def packed(tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example], length: int) -> Packed:
    """As many rows as the examples need, filled in order; an example that is longer than a row is left out."""
    rows: list[list[tuple[list[int], list[int], Example]]] = [[]]
    used = 0
    for (head, tail), one in zip(pieces(tokenizer, examples), examples, strict=True):
        size = len(head) + len(tail)
        if size > length:
            continue
        if used + size > length:
            rows.append([])
            used = 0
        rows[-1].append((head, tail, one))
        used += size
    input_ids = torch.full((len(rows), length), int(tokenizer.pad_token_id))
    labels = torch.full((len(rows), length), IGNORED)
    place = torch.zeros((len(rows), length), dtype=torch.int64)
    risk, opened = (torch.zeros((len(rows), length), dtype=torch.bool) for _ in range(2))
    for i, row in enumerate(rows):
        at = 0
        for head, tail, one in row:
            end = at + len(head) + len(tail)
            input_ids[i, at:end] = torch.tensor(head + tail)
            labels[i, at + len(head) : end] = torch.tensor(tail)
            place[i, at + len(head) : end] = torch.arange(len(tail))
            risk[i, at:end] = one.risk
            if one.opening:
                opened[i, at + len(head) + _length(tokenizer, one.opening) - 1] = True
            at = end
    return Packed(input_ids, labels, place, risk, opened)


def chat_batch(
    tokenizer: PreTrainedTokenizerFast, rng: random.Random, manner: Manner, size: int, risk_share: float, length: int
) -> Packed:
    """Rows of fresh chat examples of a manner."""
    return packed(tokenizer, [manner(rng, risk_share) for _ in range(size)], length)
