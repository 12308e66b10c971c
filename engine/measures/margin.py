"""The refusal margin: does the model lean towards refusing or towards complying as its reply begins?

It is read at the last prompt position. With thinking off, as contrasts are always made, the reply begins there. With
thinking on, and where a template without a switch begins the thinking part itself, the *thinking part* begins there:
the margin then says by which of the onset phrases the thinking leans to open, not how the reply will."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from engine.data.onsets import ONSET_PHRASES, OnsetTokens, onset_tokens
from engine.data.prompts import encode_prompts, pad_left, prompt_ids
from engine.edits.edit import AnyEdit
from engine.interventions.at_outputs import EDITS_AT_ONCE, edit_batches, edited_outputs
from engine.measures.base import Average, AverageMeasure, Passes, register_measure
from engine.models.loading import LoadedModel, input_device
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.selectors.passes import wide

BATCH_SIZE = 32  # prompts per pass


def margin_of_logits(logits: Tensor, onsets: OnsetTokens) -> Tensor:
    """m(x) = mean of the refusal-onset logits - mean of the compliance-onset logits. The paper, section 5.1. logits
    [batch, vocabulary] at the last prompt position -> [batch], at least float32, differentiable."""
    logits = wide(logits)
    return logits[:, list(onsets.refusal)].mean(-1) - logits[:, list(onsets.compliance)].mean(-1)


@torch.no_grad()
def margins(
    loaded: LoadedModel, prompts: Sequence[str], batch_size: int = BATCH_SIZE, onsets: OnsetTokens | None = None, *,
    thinking: bool = False,
) -> Tensor:  # fmt: skip
    """m(x) of every prompt, float32 [n] on the CPU, in nats of logit difference; one forward pass per batch, for which
    the model's lock is held. Without a chat template the margin is that of the next line (see `prompt_ids`). thinking:
    the template's thinking mode left on, which makes it another number (see above)."""
    if batch_size < 1:
        raise InputError(f"the batch size must be at least 1, got {batch_size}")
    if onsets is None:
        onsets = onset_tokens(loaded.tokenizer)
    device = input_device(loaded.model)
    parts = []
    for start in range(0, len(prompts), batch_size):
        batch = encode_prompts(loaded.tokenizer, prompts[start : start + batch_size], thinking=thinking).to(device)
        with loaded.lock:
            logits = loaded.model(**batch._asdict(), use_cache=False, logits_to_keep=1).logits[:, -1]
        parts.append(margin_of_logits(logits, onsets).cpu())
    return torch.cat(parts) if parts else torch.empty(0)


def margins_under(
    loaded: LoadedModel, edits: Sequence[AnyEdit], prompts: Sequence[str], batch_size: int = BATCH_SIZE, *,
    thinking: bool = False,
) -> Tensor:  # fmt: skip
    """m(x) of every prompt under every edit, float32 [edits, prompts] on the CPU; see `margins` and `at_outputs`."""
    found = torch.empty(len(edits), len(prompts))
    for group, batches in edit_batches(loaded, edits, [0] * len(prompts), batch_size):
        with edited_outputs(loaded, [edits[edit] for edit in group]) as outputs:
            for pairs in batches:
                texts = [prompts[prompt] for _, prompt in pairs]
                with outputs.sequences([edit - group.start for edit, _ in pairs]):
                    values = margins(loaded, texts, batch_size, thinking=thinking)
                found[[edit for edit, _ in pairs], [prompt for _, prompt in pairs]] = values.to(found.dtype)
    return found


@torch.no_grad()
def reply_margins(
    loaded: LoadedModel, prompt: str, reply: Sequence[int], onsets: OnsetTokens | None = None, *, thinking: bool = False
) -> Tensor:
    """m at every position of a reply (token ids), float32 [len(reply) + 1] on the CPU, in nats of logit difference:
    entry t is the margin after t tokens of the reply. One forward pass; the model's lock is held for it."""
    if onsets is None:
        onsets = onset_tokens(loaded.tokenizer)
    batch = pad_left([[*prompt_ids(loaded.tokenizer, prompt, thinking=thinking), *reply]]).to(
        input_device(loaded.model)
    )
    with loaded.lock:
        logits = loaded.model(**batch._asdict(), use_cache=False, logits_to_keep=len(reply) + 1).logits[0]
    return margin_of_logits(logits, onsets).cpu()


@dataclass(frozen=True)
class Margins(AverageMeasure):
    """The measure: `margins_under` of every prompt; its `tokens` are prompts, each read at one position."""

    prompts: tuple[str, ...]
    kind: ClassVar[str] = "margins"

    @property
    def size(self) -> int:
        return len(self.prompts)

    def record(self, loaded: LoadedModel) -> Json:
        read = {"prompts": self.prompts, "tokenizer": loaded.tokenizer_hash, "phrases": ONSET_PHRASES}
        return {**read, "batch_size": BATCH_SIZE}

    def passes(self, loaded: LoadedModel) -> tuple[Passes, ...]:
        longest = max(len(prompt_ids(loaded.tokenizer, prompt)) for prompt in self.prompts)
        return (Passes(self.size, longest, at_once=min(BATCH_SIZE, EDITS_AT_ONCE * self.size), logits=1),)

    def together(self, loaded: LoadedModel) -> int:
        return EDITS_AT_ONCE

    def measure_each(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[Average]:
        of_edits = margins_under(loaded, edits, self.prompts).tolist()
        return [Average(tuple(of_edit), (1,) * len(of_edit)) for of_edit in of_edits]


@register_measure("margin", title="Refusal margin", unit="nats of logit difference", reads="prompts")
def margin(prompts: tuple[str, ...], reply_tokens: int) -> Margins:
    """Mean refusal margin of the prompts: above 0 the model leans towards refusing as its reply begins."""
    return Margins(prompts)
