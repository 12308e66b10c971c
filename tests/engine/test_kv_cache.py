"""Keys and values by the name that each forward has for them."""

import warnings
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import tiny_model
from torch import nn
from transformers import DynamicCache

from engine.data.prompts import prompt_ids
from engine.measures import generation
from engine.measures.generation import REPLIES, generate_batch, given_cache, kept_cache, sequences_in_memory
from engine.models import memory
from engine.models.loading import LoadedModel
from engine.models.memory import Room


class Newer(nn.Module):
    def forward(self, input_ids: Any, cache: Any = None, **_: Any) -> Any:
        return SimpleNamespace(cache=cache)


class Older(nn.Module):
    def forward(self, input_ids: Any, past_key_values: Any = None, **_: Any) -> Any:
        return SimpleNamespace(past_key_values=past_key_values)


@pytest.mark.parametrize("of", [Newer, Older])
def test_what_is_given_comes_back(of: type[nn.Module]) -> None:
    model, cache = of(), DynamicCache()
    assert kept_cache(model(None, **given_cache(model, cache))) is cache
    assert kept_cache(model(None, **given_cache(model, None))) is None


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gpt_neox"])
def test_a_token_after_kept_ones_is_what_the_whole_text_gives(family: str) -> None:
    model, ids = tiny_model(family), torch.tensor([[5, 7, 9, 11]])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # the installed transformers knows the name
        first = model(input_ids=ids[:, :3], use_cache=True)
        last = model(input_ids=ids[:, 3:], use_cache=True, **given_cache(model, kept_cache(first)))
        whole = model(input_ids=ids, use_cache=False)
    torch.testing.assert_close(last.logits[:, -1], whole.logits[:, -1])
    grown = kept_cache(last)
    assert grown is not None
    assert grown.get_seq_length() == 4


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gpt_neox", "gemma3"])
def test_the_bytes_of_a_token_are_those_that_its_keys_and_values_take(family: str) -> None:
    model, ids = tiny_model(family), torch.arange(1, 11)[None]
    with torch.no_grad():
        found = kept_cache(model(input_ids=ids, use_cache=True))
    assert found is not None
    taken = sum(part.nbytes for layer in found.layers for part in (layer.keys, layer.values))
    told = generation.bytes_of_token(model) * ids.shape[1]
    assert told > taken if family == "gemma3" else told == taken  # Gemma's windows are shorter


def host(monkeypatch: pytest.MonkeyPatch, free: int, total: int) -> None:
    monkeypatch.setattr(generation, "room_on", lambda _: Room(free, total))
    monkeypatch.setattr(generation, "host_bytes", lambda: total)


def test_a_batch_takes_half_of_the_free_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    of_sequence = 30 * generation.bytes_of_token(model)
    host(monkeypatch, 7 * of_sequence, 16 * of_sequence)
    assert sequences_in_memory(model, 30, 64) == 3
    assert sequences_in_memory(model, 30, 2) == 2
    host(monkeypatch, 0, 16 * of_sequence)
    assert sequences_in_memory(model, 30, 64) == 1
    assert sequences_in_memory(model.to("meta"), 30, 64) == 1  # no card: the host's memory
    host(monkeypatch, 0, 64 * 16 * of_sequence)
    assert sequences_in_memory(model, 30, 64) == 64  # a sixteenth of all


def test_replies_of_fewer_at_once_are_the_same(tiny_llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = ["sat on", "The cat sat on the mat.", "it ran", "No way.", "Sure."]
    expected = [reply.ids for reply in generate_batch(tiny_llama, prompts, 8)]
    longest = max(len(prompt_ids(tiny_llama.tokenizer, prompt)) for prompt in prompts)
    of_sequence = (longest + 8) * generation.bytes_of_token(tiny_llama.model)
    host(monkeypatch, 4 * of_sequence, 4 * of_sequence)
    monkeypatch.setattr(memory, "_fitted", weakref.WeakKeyDictionary())
    sizes: list[int] = []
    hook = tiny_llama.model.register_forward_pre_hook(
        lambda _module, _args, given: sizes.append(len(given["input_ids"])), with_kwargs=True
    )
    try:
        found = [reply.ids for reply in generate_batch(tiny_llama, prompts, 8)]
    finally:
        hook.remove()
    assert found == expected
    assert max(sizes) == 2
    assert memory.largest_batch(tiny_llama.model, REPLIES, 256) == 2  # as manifests say
