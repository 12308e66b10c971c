"""Keys and values that a forward keeps: what it calls them (`cache` since transformers 5.24, `past_key_values` before),
and how many sequences of them the host's memory bears."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torch import nn

from engine.models.memory import has_own_memory, host_bytes, room_on

if TYPE_CHECKING:
    from transformers import Cache

CACHE = "cache"
SHARE = 0.5  # of the host's free memory, for keys and values; a choice
LITTLE = 1 / 16  # of all its memory: what is not asked about, since to ask gives back memory that the next pass wants
NAMES = (CACHE, "past_key_values")  # also those of a transformers output's fields


def given(model: nn.Module, cache: Cache | None) -> dict[str, Cache | None]:
    """The keyword argument that hands `cache` to this model's forward."""
    takes_it = CACHE in inspect.signature(model.forward).parameters
    return {CACHE if takes_it else NAMES[1]: cache}


def kept(output: Any) -> Cache | None:
    """What a forward with `use_cache` gave back, to be handed to the next; None where it kept nothing."""
    return getattr(output, CACHE if hasattr(output, CACHE) else NAMES[1], None)


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
