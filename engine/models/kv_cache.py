"""What a forward calls the keys and values that it keeps: `cache` since transformers 5.24, `past_key_values` before."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from transformers import Cache

CACHE = "cache"
NAMES = (CACHE, "past_key_values")  # also those of a transformers output's fields


def given(model: nn.Module, cache: Cache | None) -> dict[str, Cache | None]:
    """The keyword argument that hands `cache` to this model's forward."""
    takes_it = CACHE in inspect.signature(model.forward).parameters
    return {CACHE if takes_it else NAMES[1]: cache}


def kept(output: Any) -> Cache | None:
    """What a forward with `use_cache` gave back, to be handed to the next; None where it kept nothing."""
    found: Cache | None = getattr(output, CACHE if hasattr(output, CACHE) else NAMES[1], None)
    return found
