"""Keys and values by the name that each forward has for them."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import tiny_model
from torch import nn
from transformers import DynamicCache

from engine.models import kv_cache


class Newer(nn.Module):
    def forward(self, input_ids: Any, cache: Any = None, **_: Any) -> Any:
        return SimpleNamespace(cache=cache)


class Older(nn.Module):
    def forward(self, input_ids: Any, past_key_values: Any = None, **_: Any) -> Any:
        return SimpleNamespace(past_key_values=past_key_values)


@pytest.mark.parametrize("of", [Newer, Older])
def test_what_is_given_comes_back(of: type[nn.Module]) -> None:
    model, cache = of(), DynamicCache()
    assert kv_cache.kept(model(None, **kv_cache.given(model, cache))) is cache
    assert kv_cache.kept(model(None, **kv_cache.given(model, None))) is None


def test_an_output_without_any_has_none() -> None:
    assert kv_cache.kept(SimpleNamespace(logits=None)) is None


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gpt_neox"])
def test_a_token_after_kept_ones_is_what_the_whole_text_gives(family: str) -> None:
    model, ids = tiny_model(family), torch.tensor([[5, 7, 9, 11]])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # the installed transformers knows the name
        first = model(input_ids=ids[:, :3], use_cache=True)
        last = model(input_ids=ids[:, 3:], use_cache=True, **kv_cache.given(model, kv_cache.kept(first)))
        whole = model(input_ids=ids, use_cache=False)
    torch.testing.assert_close(last.logits[:, -1], whole.logits[:, -1])
    grown = kv_cache.kept(last)
    assert grown is not None
    assert grown.get_seq_length() == 4
