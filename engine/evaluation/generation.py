"""Greedy replies with a KV cache: many prompts at once, or one as a stream of text.

Greedy means the arg max of the model's logits at every step. Of the generation config only the end tokens
are used, not its sampling settings or penalties, so that a reply depends on weights and prompt alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedTokenizerBase

from engine.errors import InputError
from engine.evaluation.prompts import EncodedPrompts, pad_left, prompt_ids
from engine.models import LoadedModel, input_device

BATCH_SIZE = 64
# Sequences that ended are dropped from the batch once this share of it is idle: dropping copies the cache.
IDLE_SHARE = 0.25
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Reply:
    """One greedy reply.

    text: without special tokens. tokens: generated, the end token not counted. seconds: from the start of
    the prompt's batch to the reply's last token. finished: ended by itself, not by `max_new_tokens`.
    """

    text: str
    tokens: int
    seconds: float
    finished: bool


def generate_batch(
    loaded: LoadedModel,
    prompts: Sequence[str],
    max_new_tokens: int = 200,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> list[Reply]:
    """Greedy replies in the order of the prompts; `progress(done, all)` is called after every batch.

    Prompts of similar length share a batch; a reply does not depend on its neighbours in float32 (in
    bfloat16 it can, so the batch size belongs into a manifest). The model's lock is held meanwhile.
    `InputError` where prompt and reply would not fit into the model's context.
    """
    if batch_size < 1:
        raise InputError(f"the batch size must be at least 1, got {batch_size}")
    encoded = [_checked_prompt(loaded, prompt, max_new_tokens) for prompt in prompts]
    by_length = sorted(range(len(prompts)), key=lambda i: len(encoded[i]))
    replies: dict[int, Reply] = {}
    for start in range(0, len(prompts), batch_size):
        members = by_length[start : start + batch_size]
        with loaded.lock:
            batch_replies = _greedy_batch(loaded, [encoded[i] for i in members], max_new_tokens)
        replies.update(zip(members, batch_replies, strict=True))
        if progress:
            progress(len(replies), len(prompts))
    return [replies[i] for i in range(len(prompts))]


def stream_reply(
    loaded: LoadedModel,
    prompt: str,
    max_new_tokens: int = 200,
    should_stop: Callable[[], bool] = lambda: False,
    on_token: Callable[[int], None] = lambda _: None,
) -> Iterator[str]:
    """The text of `generate_batch`'s reply in pieces, one per token where a token completes text.

    Ends at an end token, after `max_new_tokens`, or once `should_stop()`, asked before every token, is true.
    `on_token(id)` is called with every token of the reply, the end token not among them.
    The caller holds the model's lock (`zeroed` does): a generator that is left half-way could not release it
    from another thread. `InputError` as in `generate_batch`, on the first piece.
    """
    ids = _checked_prompt(loaded, prompt, max_new_tokens)
    decoder = _Decoder(loaded, pad_left([ids]))
    ends = _end_tokens(loaded.model, loaded.tokenizer)
    reply: list[int] = []
    shown = ""
    while len(reply) < max_new_tokens and not should_stop():
        token = int(decoder.next_tokens())
        if token in ends:
            break
        reply.append(token)
        on_token(token)
        text = _decode(loaded.tokenizer, reply)
        # A character of several tokens shows as a replacement character until its last byte is there.
        if len(text) > len(shown) and not text.endswith(REPLACEMENT):
            yield text[len(shown) :]
            shown = text
    rest = _decode(loaded.tokenizer, reply)[len(shown) :]
    if rest:
        yield rest


class _Decoder:
    """A batch of growing sequences and their KV cache; every call of `next_tokens` is one forward pass."""

    def __init__(self, loaded: LoadedModel, prompts: EncodedPrompts) -> None:
        self.model = loaded.model
        device = input_device(loaded.model)
        self.input_ids, self.attention_mask, self.position_ids = prompts.to(device)
        self.cache: Cache | None = None  # the model makes the kind that its layers need

    # Not inference_mode: buffers that a model renews while it generates must stay usable for gradients.
    @torch.no_grad()
    def next_tokens(self) -> Tensor:
        """Arg max tokens [batch], which become the next input."""
        output = self.model(
            input_ids=self.input_ids,
            attention_mask=self.attention_mask,
            position_ids=self.position_ids,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache = output.past_key_values
        tokens = output.logits[:, -1].argmax(dim=-1).to(self.input_ids.device)
        self.input_ids = tokens[:, None]
        self.position_ids = self.position_ids[:, -1:] + 1
        self.attention_mask = nn.functional.pad(self.attention_mask, (0, 1), value=1)
        return tokens

    def keep_sequences(self, kept: Tensor) -> None:
        """Go on with these sequences of the batch only; a CPU index suits a cache on several devices."""
        if self.cache is not None:
            self.cache.batch_select_indices(kept)
        self.input_ids = self.input_ids[kept]
        self.position_ids = self.position_ids[kept]
        self.attention_mask = self.attention_mask[kept]


def _greedy_batch(loaded: LoadedModel, prompts: list[list[int]], max_new_tokens: int) -> list[Reply]:
    start = time.perf_counter()
    decoder = _Decoder(loaded, pad_left(prompts))
    ends = _end_tokens(loaded.model, loaded.tokenizer)
    ids: list[list[int]] = [[] for _ in prompts]
    seconds = [0.0] * len(prompts)
    finished = [False] * len(prompts)
    running = list(range(len(prompts)))  # which prompt each sequence of the decoder's batch belongs to
    for _ in range(max_new_tokens):
        tokens = decoder.next_tokens().tolist()
        now = time.perf_counter() - start
        for member, token in zip(running, tokens, strict=True):
            if finished[member]:
                continue
            seconds[member] = now
            if token in ends:
                finished[member] = True
            else:
                ids[member].append(token)
        active = [row for row, member in enumerate(running) if not finished[member]]
        if not active:
            break
        if len(active) <= (1 - IDLE_SHARE) * len(running):
            decoder.keep_sequences(torch.tensor(active))
            running = [running[row] for row in active]
    return [
        Reply(_decode(loaded.tokenizer, ids[i]), len(ids[i]), seconds[i], finished[i])
        for i in range(len(prompts))
    ]


def _end_tokens(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The generation config's end tokens (often several), else the tokenizer's."""
    config = getattr(model, "generation_config", None)
    ends = config.eos_token_id if config is not None else None
    if ends is None:
        ends = tokenizer.eos_token_id
    if ends is None:
        return frozenset()
    return frozenset(ends if isinstance(ends, list) else [ends])


def _checked_prompt(loaded: LoadedModel, prompt: str, max_new_tokens: int) -> list[int]:
    if max_new_tokens < 1:
        raise InputError(f"the number of new tokens must be at least 1, got {max_new_tokens}")
    ids = prompt_ids(loaded.tokenizer, prompt)
    context = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
    if context is not None and len(ids) + max_new_tokens > context:
        raise InputError(
            f"a prompt of {len(ids)} tokens and {max_new_tokens} new ones exceed the model's context of {context}; "
            "shorten the prompt or the reply"
        )
    return ids


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    # Cleaning up spaces would change text that a stream has shown already.
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
