"""What a checkpoint's configuration may ask for: bounded before anything is built from it, since a line of text can ask
for a model that takes hours to set up and never exists."""

import math
import re
from collections.abc import Iterator
from typing import Any

from engine.records.errors import InputError

# Far above the largest models of 2025: 126 blocks (Llama 3.1 405B), 61 blocks of 384 experts (Kimi K2), a vocabulary of
# 262,144 tokens and 53,248 neurons per block.
MOST_LAYERS = 1_000
MOST_EXPERTS = 100_000  # in all layers together
LARGEST = 10_000_000  # of any other size
MOST_POSITIONS = 2**31
DEEPEST = 40  # lists and objects inside each other
_LAYERS = re.compile(r"(^|_)layers?$|(^|_)blocks?$|^depth$")
_EXPERTS = re.compile(r"(^|_)experts?$")
_SIZES = re.compile(r"(^|_)(size|dim|heads?|groups?|rank|width|channels|embd|inner|d_model|d_ff|ffn_dim|kv_heads)$")
_FINITE = re.compile(r"eps|theta|factor|scal|multiplier")  # others may be infinite, as a limit is
_BASE = re.compile(r"rope_theta$|rotary_emb_base$|rope_local_base_freq$")
_POSITIONS = re.compile(r"positions?$|position_embeddings$")
_REMEDY = "correct it, or copy the checkpoint again"
_PER_LAYER = re.compile(r"layer|block")


def check_sizes(config: dict[str, Any], model_id: str) -> None:
    """`InputError` where a configuration is nested too deep, holds NaN, or asks for more than any model has. Sizes are
    known by their names; what is no size is left to the library that reads it."""
    for path, inner in _objects(config, model_id):
        layers, experts = 1, 0
        for key, value in inner.items():
            where = f"{model_id}: config.json has {'.'.join((*path, key))}"
            if isinstance(value, list) and _PER_LAYER.search(key) and len(value) > MOST_LAYERS:
                raise InputError(f"{where} of {len(value):,} entries; expected at most {MOST_LAYERS:,}: {_REMEDY}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if math.isnan(value) or (math.isinf(value) and _FINITE.search(key)):
                raise InputError(f"{where} = {value}; expected a finite number: {_REMEDY}")
            if _BASE.search(key) and value <= 0:
                raise InputError(f"{where} = {value}; expected a number above 0: {_REMEDY}")
            if not isinstance(value, int):
                continue
            if _LAYERS.search(key):
                layers = max(layers, _bounded(value, MOST_LAYERS, where))
            elif _EXPERTS.search(key):
                experts = max(experts, _bounded(value, MOST_EXPERTS, where))
            elif _SIZES.search(key):
                _bounded(value, LARGEST, where)
            elif _POSITIONS.search(key):
                _bounded(value, MOST_POSITIONS, where)
        if layers * experts > MOST_EXPERTS:
            raise InputError(
                f"{model_id}: config.json asks for {experts:,} experts in each of {layers:,} layers; expected at most "
                f"{MOST_EXPERTS:,} in all: {_REMEDY}"
            )


def _bounded(value: int, most: int, where: str) -> int:
    if not -1 <= value <= most:  # -1 stands for "none" in some families
        shown = f"{value:,}" if abs(value) < 10**15 else "a number of more than 15 digits"
        raise InputError(f"{where} = {shown}; expected at most {most:,} and nothing below 0: {_REMEDY}")
    return value


def _objects(config: dict[str, Any], model_id: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every object inside a configuration with the keys that lead to it. Without recursion: it may be very deep."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), config)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > DEEPEST:
            raise InputError(
                f"{model_id}: config.json is nested more than {DEEPEST} deep; expected a configuration as "
                "save_pretrained writes it, copy the checkpoint again"
            )
        if isinstance(value, dict):
            yield path, value
            waiting += [((*path, str(key)), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*path, str(place)), inner) for place, inner in enumerate(value)]
