"""KL divergence of an edited from the unedited model, on the unedited model's own replies to harmless prompts."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from engine.data.prompts import pad_left, prompt_ids
from engine.data.thinking import opened
from engine.edits.edit import UNEDITED, AnyEdit
from engine.interventions.at_outputs import Outputs, edited_outputs
from engine.measures.base import Average, Measure
from engine.measures.predictions import kind_of, logits_that_fit, under_one_softmax, vocabulary_of
from engine.models.loading import LoadedModel, input_device
from engine.records.hashing import Json

EDITS_TOGETHER = 16  # that share one set of passes of the unedited model


@dataclass(frozen=True)
class Kl(Measure[Average]):
    """KL(unedited || edited) = sum_v p(v) (log p(v) - log q(v)), at every position of a reply, in nats: a sum for each
    prompt, and how many positions its reply has.

    p, q: next-token distributions of the unedited and of the edited model after the same prompt and the same beginning
    of the reply. A reply of T tokens has T + 1 positions: from where its first token is predicted to where it is over.
    Replies are the unedited model's own, tokenised again. Positions inside the prompt do not count.

    system: text of a system turn before every prompt on the edited side only, "" for none: then the system prompt is
    what is measured. thinking: the template's thinking mode left on, on both sides. What of a reply the template had
    written (`opened`) stands once, in the prompt."""

    prompts: tuple[str, ...]
    replies: tuple[str, ...]
    batch_size: int
    system: str = ""
    thinking: bool = False
    kind: ClassVar[str] = "divergence"
    _hashes: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def record(self, loaded: LoadedModel) -> Json:
        if loaded.tokenizer_hash not in self._hashes:  # many cells share a measure
            ids = [self._sequences(loaded, system) for system in ("", self.system)]
            self._hashes[loaded.tokenizer_hash] = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
        return {"tokens": self._hashes[loaded.tokenizer_hash], "batch_size": self.batch_size}

    def encode(self, result: Average) -> Json:
        return {"prompt_nats": result.sums, "prompt_positions": result.counts}

    def decode(self, stored: Json) -> Average:
        return Average(tuple(stored["prompt_nats"]), tuple(stored["prompt_positions"]))

    def together(self, loaded: LoadedModel) -> int:
        """Always several: the unedited model has to be there beside them, so nothing is put into the weights."""
        return EDITS_TOGETHER

    @torch.no_grad()
    def measure_each(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[Average]:
        """Unedited and edited passes have the same shape, so that an edit of nothing gives 0 exactly."""
        plain, asked = self._sequences(loaded, ""), self._sequences(loaded, self.system)
        positions = tuple(n for _, n in plain)
        nats: list[list[float]] = [[] for _ in edits]
        fit = logits_that_fit(kind_of(loaded.device), max(positions), vocabulary_of(loaded.model))
        size = max(1, min(self.batch_size, fit))
        with edited_outputs(loaded, [UNEDITED, *edits]) as outputs:
            for start in range(0, len(positions), size):
                piece = slice(start, start + size)
                before = _logits(loaded, outputs, 0, plain[piece])
                for number in range(len(edits)):
                    after = _logits(loaded, outputs, number + 1, asked[piece])
                    for row, n in enumerate(positions[piece]):
                        nats[number].append(float(token_kl(before[row, -n:], after[row, -n:]).sum()))
        return [Average(tuple(sums), positions) for sums in nats]

    def _sequences(self, loaded: LoadedModel, system: str) -> list[tuple[list[int], int]]:
        """Token ids of every prompt with its reply, and how many positions the reply has."""
        sequences = []
        for prompt, reply in zip(self.prompts, self.replies, strict=True):
            ids = prompt_ids(loaded.tokenizer, prompt, system=system, thinking=self.thinking)
            written = reply.removeprefix(opened(loaded.tokenizer, ids))
            reply_ids = list(loaded.tokenizer(written, add_special_tokens=False)["input_ids"])
            sequences.append(([*ids, *reply_ids], len(reply_ids) + 1))
        return sequences


def token_kl(before: Tensor, after: Tensor) -> Tensor:
    """KL(softmax(before) || softmax(after)) of every position; softmax and sum in float64 on the CPU, in chunks.
    before, after [T, V] logits of any float dtype; returns [T] float64, exactly 0 where they are equal"""
    chunk = under_one_softmax("cpu", before.shape[-1])
    parts = []
    for first, second in zip(before.split(chunk), after.split(chunk), strict=True):
        # Not every device (MPS) has float64.
        log_p, log_q = (logits.cpu().double().log_softmax(-1) for logits in (first, second))
        parts.append((log_p.exp() * (log_p - log_q)).sum(-1))
    return torch.cat(parts)


def _logits(loaded: LoadedModel, outputs: Outputs, edit: int, sequences: Sequence[tuple[list[int], int]]) -> Tensor:
    """Logits [B, positions, V] at the last positions under one of the edits."""
    batch = pad_left([ids for ids, _ in sequences]).to(input_device(loaded.model))
    longest = max(n for _, n in sequences)
    with outputs.sequences([edit]):
        logits: Tensor = loaded.model(**batch._asdict(), use_cache=False, logits_to_keep=longest).logits
    return logits
