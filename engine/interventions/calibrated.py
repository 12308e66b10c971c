"""What Linears say on calibration text, for interventions that put it in the place of what they would say."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from engine.data.corpora import Windows
from engine.interventions.in_weights import is_masked
from engine.models.experts import routed
from engine.models.forwards import last_logits_only
from engine.models.loading import LoadedModel, input_device
from engine.models.row_index import Layer
from engine.models.units import column_index
from engine.selectors.passes import Seen

TOKENS_AT_ONCE = 4096
Place = tuple[str, str]  # path of a Linear, side
See = Callable[[Place, Tensor, Seen], None]


def places(loaded: LoadedModel) -> Iterator[Layer]:
    """Every Linear whose outputs are rows, then every one whose inputs are columns of the column index."""
    yield from loaded.rows.layers
    yield from column_index(loaded).layers


def place_of(layer: Layer) -> Place:
    return layer.name, layer.side


@torch.no_grad()
def read(loaded: LoadedModel, windows: Windows, see: See) -> None:
    """The unedited model passes over the windows, in their order; `see(place, values, seen)` gets [B, T, rows] of each
    place (an expert's: [tokens, rows]) and which tokens these are. `RuntimeError` within `zeroed`: that model is not
    the unedited one."""
    own = threading.get_ident()
    shape = (0, 0)

    def hook(layer: Layer, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if threading.get_ident() == own:
            seen = Seen(shape, args[1] if routed(module) else None)
            see(place_of(layer), output if layer.side == "output" else args[0], seen)

    device = input_device(loaded.model)
    with loaded.lock, ExitStack() as hooks:
        if is_masked(loaded.model):
            raise RuntimeError("calibration text is read on the unedited model; leave `zeroed` before")
        for layer in places(loaded):
            hooks.callback(loaded.model.get_submodule(layer.name).register_forward_hook(partial(hook, layer)).remove)
        for chunk in windows.read_ids.split(max(1, TOKENS_AT_ONCE // windows.read_ids.shape[1])):
            shape = (chunk.shape[0], chunk.shape[1])
            loaded.model(input_ids=chunk.to(device), use_cache=False, **last_logits_only(loaded.model))
