"""Replies with a KV cache: many prompts at once, or one as a stream of text; under several edits at once.

Greedy unless they are sampled. Of the generation config only the end tokens are used, so that a reply depends on
weights and prompt alone."""

import inspect
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedTokenizerBase

from engine.data.chat_template import turn_ends
from engine.data.prompts import Prompt, pad_left, prompt_ids
from engine.data.thinking import kept_marks, opened
from engine.edits.edit import UNEDITED, AnyEdit
from engine.interventions.at_outputs import Outputs, edit_batches, edited_outputs, mixable
from engine.measures.predictions import vocabulary_of
from engine.measures.sampling import Sampling, drawn
from engine.models.loading import LoadedModel, input_device
from engine.models.memory import has_own_memory, host_bytes, in_parts, room_on, saying_what_fits, take_fewer
from engine.models.products import faster_products
from engine.records.errors import InputError
from engine.records.locks import OnWait, patient
from engine.records.progress import passing

BATCH_SIZE = 256  # small batches leave matrix products and cards idle
REPLIES = "replies"  # what is halved where memory runs out
# Sequences that ended are dropped from the batch once this share of it is idle: dropping copies the cache.
IDLE_SHARE = 0.25
CACHE, CACHE_ONCE = "cache", "past_key_values"  # what forwards and outputs of transformers call it since 5.24, before
SHARE = 0.5  # of the host's free memory, for keys and values; a choice
LITTLE = 1 / 16  # of all its memory: what is not asked about, since to ask gives back memory that the next pass wants
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Reply:
    """One reply. text: without special tokens, but for those around a thinking part, which begins with its mark even
    where the template wrote that. tokens: generated, the end token not counted. seconds: from the start of the batch to
    the reply's last token. finished: ended by itself, not by `max_new_tokens`. ids: of the tokens."""

    text: str
    tokens: int
    seconds: float
    finished: bool
    ids: tuple[int, ...] = field(default=(), repr=False, compare=False)


def generate_batch(
    loaded: LoadedModel, prompts: Sequence[Prompt], max_new_tokens: int, batch_size: int = BATCH_SIZE, **how: Any
) -> list[Reply]:
    """Replies of the model as it is, in the order of the prompts. See `generate_under`."""
    return generate_under(loaded, [UNEDITED], prompts, max_new_tokens, batch_size, **how)[0]


def generate_under(
    loaded: LoadedModel, edits: Sequence[AnyEdit], prompts: Sequence[Prompt], max_new_tokens: int,
    batch_size: int = BATCH_SIZE, progress: Callable[[int, int], None] | None = None, *, system: str = "",
    thinking: bool = False, sampling: Sampling | None = None, on_wait: OnWait = patient,
) -> list[list[Reply]]:  # fmt: skip
    """Replies to every prompt under every edit: [edit][prompt]. `progress(done, all)` after every batch,
    `on_wait(seconds)` while another thread holds the model, which may raise to give up, as `each_pass` may.

    system: text of a system turn before every prompt, "" for none (see `check_system`). thinking: leave the template's
    thinking mode on. sampling: how tokens are drawn, None for greedy replies.

    A batch holds prompts of similar length under any of the edits (see `at_outputs`); a reply does not depend on its
    neighbours in float32 (in bfloat16 it can, so the batch size belongs into a manifest). The model's lock is held for
    each pass alone. A batch for which there is no memory is written in halves. `InputError` where prompt and reply
    would not fit into the model's context, or one reply not into memory."""
    encoded = [checked_prompt(loaded, prompt, max_new_tokens, system, thinking) for prompt in prompts]
    replies: dict[tuple[int, int], Reply] = {}

    def written(outputs: Outputs, first: int, pairs: Sequence[tuple[int, int]]) -> list[Reply]:
        which = [edit - first for edit, _ in pairs]
        numbers = [sampling.numbers(prompts[prompt]) for _, prompt in pairs] if sampling else []
        sequences = [encoded[prompt] for _, prompt in pairs]
        decoder = _Decoder(loaded, sequences, outputs, which, on_wait, sampling=sampling, numbers=numbers)
        return _batch(decoder, max_new_tokens)

    lengths = [len(ids) for ids in encoded]
    wanted = min(batch_size, len(edits) * len(prompts))
    fit = sequences_in_memory(loaded.model, max(lengths, default=0) + max_new_tokens, wanted)
    if fit < wanted:
        take_fewer(loaded.model, REPLIES, fit)
    for group, batches in edit_batches(loaded, edits, lengths, batch_size):
        with edited_outputs(loaded, [edits[edit] for edit in group]) as outputs:
            for batch in batches:
                for pairs, found in in_parts(loaded.model, REPLIES, batch, partial(written, outputs, group.start)):
                    replies.update(zip(pairs, found, strict=True))
                    if progress:
                        progress(len(replies), len(edits) * len(prompts))
    return [[replies[edit, prompt] for prompt in range(len(prompts))] for edit in range(len(edits))]


def stream_replies(
    loaded: LoadedModel, prompt: str, edits: Sequence[AnyEdit], max_new_tokens: int,
    on_token: Callable[[int, int], None] = lambda _edit, _token: None, on_wait: OnWait = patient, *,
    thinking: bool = False,
) -> Generator[tuple[int, str | Reply], None, None]:  # fmt: skip
    """The replies to one prompt under several edits as one batch, in pieces as they come: (edit, piece).

    A piece of text per token where a token completes text, and the whole `Reply` once it has ended. Closed, it makes no
    further pass. `on_token(edit, id)`: with every token of a reply but the end token; `on_wait(seconds)`: while another
    thread holds the model, whose lock is held for each pass alone. thinking and `InputError` as in `generate_under`,
    the error on the first piece; where memory runs out, whenever that is."""
    ids = checked_prompt(loaded, prompt, max_new_tokens, thinking=thinking)
    numbers = range(len(edits))
    batches = [list(numbers)] if mixable(loaded, edits) else [[number] for number in numbers]
    with edited_outputs(loaded, edits) as outputs:
        for members in batches:
            decoder = _Decoder(loaded, [ids] * len(members), outputs, members, on_wait)
            growing = [_Growing(decoder, number) for number in range(len(members))]
            steps = _steps(decoder, max_new_tokens)
            while True:
                with saying_what_fits("", len(members), REPLIES, option=""):
                    step = next(steps, None)
                if step is None:
                    break
                for member, token, last in step:
                    edit, reply = members[member], growing[member]
                    if token is not None:
                        reply.ids.append(token)
                        on_token(edit, token)
                    piece = reply.piece(last)
                    if piece:
                        yield edit, piece
                    if last:
                        yield edit, reply.reply(token is None)


@dataclass(eq=False)
class _Decoder:
    """A batch of growing sequences, the edit that each carries, and their KV cache; `next_tokens` is one pass."""

    loaded: LoadedModel
    prompts: list[list[int]]
    outputs: Outputs
    which: list[int]
    on_wait: OnWait = patient
    sampling: Sampling | None = None
    numbers: Sequence[np.random.Generator] = ()  # of every sequence its own

    def __post_init__(self) -> None:
        self.start = time.perf_counter()
        self.model, self.tokenizer = self.loaded.model, self.loaded.tokenizer
        self.ends, self.marks = end_tokens(self.model, self.tokenizer), kept_marks(self.tokenizer)
        self.openings = [opened(self.tokenizer, ids) for ids in self.prompts]
        self.input_ids, self.attention_mask, self.position_ids = pad_left(self.prompts).to(input_device(self.model))
        self.cache: Cache | None = None  # the model makes the kind that its layers need

    # Not inference_mode: buffers that a model renews while it generates must stay usable for gradients.
    @torch.no_grad()
    def next_tokens(self) -> Tensor:
        """Arg max or drawn tokens [batch], which become the next input."""
        with self.outputs.sequences(self.which, self.on_wait), faster_products():
            output = self.model(
                input_ids=self.input_ids,
                attention_mask=self.attention_mask,
                position_ids=self.position_ids,
                use_cache=True,
                logits_to_keep=1,
                **given_cache(self.model, self.cache),
            )
        self.cache = kept_cache(output)
        logits = output.logits[:, -1]
        if self.sampling is None:
            tokens = logits.argmax(dim=-1)
        else:
            tokens = drawn(logits, self.sampling.temperature, [numbers.random() for numbers in self.numbers])
        tokens = tokens.to(self.input_ids.device)
        self.input_ids = tokens[:, None]
        self.position_ids = self.position_ids[:, -1:] + 1
        self.attention_mask = nn.functional.pad(self.attention_mask, (0, 1), value=1)
        return tokens

    def keep_sequences(self, active: list[int]) -> None:
        """Go on with these sequences of the batch only; a CPU index suits a cache on several devices."""
        active_rows = torch.tensor(active)
        if self.cache is not None:
            self.cache.batch_select_indices(active_rows)
        self.input_ids = self.input_ids[active_rows]
        self.position_ids = self.position_ids[active_rows]
        self.attention_mask = self.attention_mask[active_rows]
        self.which = [self.which[row] for row in active]
        self.numbers = [self.numbers[row] for row in active] if self.numbers else []


def _steps(decoder: _Decoder, max_new_tokens: int) -> Iterator[list[tuple[int, int | None, bool]]]:
    """Every pass: the sequences that are still written as (number, token, is it the last?). An
    end token is None; it ends its sequence, as does the last of `max_new_tokens`."""
    running = list(range(len(decoder.which)))  # which sequence each row of the decoder's batch is
    finished: set[int] = set()
    for count in range(1, max_new_tokens + 1):
        passing()
        tokens = decoder.next_tokens().tolist()
        step: list[tuple[int, int | None, bool]] = []
        for member, token in zip(running, tokens, strict=True):
            if member in finished:
                continue
            if token in decoder.ends:
                finished.add(member)
                step.append((member, None, True))
            else:
                step.append((member, token, count == max_new_tokens))
        yield step
        active = [row for row, member in enumerate(running) if member not in finished]
        if not active:
            return
        if len(active) <= (1 - IDLE_SHARE) * len(running):
            decoder.keep_sequences(active)
            running = [running[row] for row in active]


class _Growing:
    """A reply while it is written. A character of several tokens is no text until its last byte is there."""

    def __init__(self, decoder: _Decoder, number: int) -> None:
        self.decoder, self.opening = decoder, decoder.openings[number]
        self.ids: list[int] = []
        self.shown = ""

    def piece(self, last: bool) -> str:
        """The text that is new since the last piece."""
        text = self._text()
        if len(text) <= len(self.shown) or (text.endswith(REPLACEMENT) and not last):
            return ""
        new = text[len(self.shown) :]
        self.shown = text
        return new

    def reply(self, finished: bool) -> Reply:
        """What was written until now."""
        return Reply(self._text(), len(self.ids), time.perf_counter() - self.decoder.start, finished, tuple(self.ids))

    def _text(self) -> str:
        return self.opening + _decode(self.decoder.tokenizer, self.ids, self.decoder.marks)


def _batch(decoder: _Decoder, max_new_tokens: int) -> list[Reply]:
    growing = [_Growing(decoder, number) for number in range(len(decoder.which))]
    replies: dict[int, Reply] = {}
    for step in _steps(decoder, max_new_tokens):
        for member, token, last in step:
            if token is not None:
                growing[member].ids.append(token)
            if last:
                replies[member] = growing[member].reply(token is None)
    return [replies[member] for member in range(len(growing))]


def end_tokens(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """What ends a reply: the generation config's end tokens, the tokenizer's, and those that end a turn in the chat
    template (`turn_ends`). Ids that the model has no row for are none: it cannot say them."""
    ends = _configured(model) | turn_ends(tokenizer) | _ids(tokenizer.eos_token_id)
    return frozenset(end for end in ends if end < vocabulary_of(model))


def further_ends(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """End tokens beyond those of the generation config, or, where it has none, the tokenizer's: once the only ones, and
    in no key."""
    return sorted(end_tokens(model, tokenizer) - (_configured(model) or _ids(tokenizer.eos_token_id)))


def _configured(model: nn.Module) -> frozenset[int]:
    return _ids(getattr(getattr(model, "generation_config", None), "eos_token_id", None))


def _ids(ends: int | list[int] | None) -> frozenset[int]:
    return frozenset() if ends is None else frozenset(ends if isinstance(ends, list) else [ends])


def checked_prompt(
    loaded: LoadedModel, prompt: Prompt, max_new_tokens: int, system: str = "", thinking: bool = False
) -> list[int]:
    """The prompt's token ids. `InputError` where it and the reply exceed the model's context; needs no weights."""
    if max_new_tokens < 1:
        raise InputError(f"the number of new tokens must be at least 1, got {max_new_tokens}")
    ids = prompt_ids(loaded.tokenizer, prompt, system=system, thinking=thinking)
    rows = vocabulary_of(loaded.model)
    if max(ids) >= rows:
        raise InputError(
            f"a prompt has the token {loaded.tokenizer.convert_ids_to_tokens(max(ids))!r} with the id {max(ids)}, and "
            f"{loaded.id} has rows for {rows} tokens; the embeddings were not resized for the tokens that were added: "
            "save the model's own tokenizer beside it"
        )
    context = context_tokens(loaded)
    if context is not None and len(ids) + max_new_tokens > context:
        raise InputError(
            f"a prompt of {len(ids)} tokens and {max_new_tokens} new ones exceed the model's context of {context}; "
            "shorten the prompt or the reply"
        )
    return ids


def context_tokens(loaded: LoadedModel) -> int | None:
    return getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)


def room_for_replies(loaded: LoadedModel, prompts: Sequence[Prompt], **how: Any) -> int | None:
    """Tokens that the model's context leaves behind the longest prompt, None for any number. how: as `prompt_ids`."""
    context = context_tokens(loaded)
    if context is None:
        return None
    return context - max(len(prompt_ids(loaded.tokenizer, prompt, **how)) for prompt in prompts)


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int], marks: Mapping[int, str]) -> str:
    """The text without special tokens, but with these."""
    place = next((place for place, token in enumerate(ids) if token in marks), None)
    if place is not None:
        before, after = (_decode(tokenizer, part, marks) for part in (ids[:place], ids[place + 1 :]))
        return before + marks[ids[place]] + after
    # Cleaning up spaces would change text that a stream has shown already.
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def given_cache(model: nn.Module, cache: Cache | None) -> dict[str, Cache | None]:
    """The keyword argument that hands `cache` to this model's forward."""
    return {CACHE if CACHE in inspect.signature(model.forward).parameters else CACHE_ONCE: cache}


def kept_cache(output: Any) -> Cache | None:
    """What a forward with `use_cache` gave back, to be handed to the next; None where it kept nothing."""
    return getattr(output, CACHE if hasattr(output, CACHE) else CACHE_ONCE, None)


def bytes_of_token(model: nn.Module) -> int:
    """Keys and values of one token in all blocks, by the configuration: 2 x blocks x heads x width of a head.
    An upper bound where some blocks keep a window or a state only; 0 where the configuration names no heads."""
    config: Any = model.config.get_text_config()  # type: ignore[operator, union-attr]
    blocks, queries, hidden = (
        getattr(config, name, None) or 0 for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    heads = getattr(config, "num_key_value_heads", None) or queries
    width = getattr(config, "head_dim", None) or hidden // max(queries, 1)
    return int(2 * blocks * heads * width) * next(model.parameters()).dtype.itemsize


def sequences_in_memory(model: nn.Module, tokens: int, wanted: int) -> int:
    """How many sequences of so many tokens a batch may hold: `wanted`, fewer where their keys and values would take
    more than `SHARE` of the host's free memory and more than `LITTLE` of all: a system without memory ends the
    process."""
    device = next(model.parameters()).device
    needed = bytes_of_token(model) * tokens
    if has_own_memory(device) or needed * wanted <= LITTLE * host_bytes():
        return wanted
    return max(1, min(wanted, int(SHARE * room_on(device).free) // needed))
