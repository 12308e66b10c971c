"""Gated MLPs: the modules in which a zero gate row or a zero up row kills a whole neuron."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import nn

GATED = ("gate_proj", "up_proj", "down_proj")


def gated_mlps(model: nn.Module) -> Iterator[tuple[nn.Linear, nn.Linear, nn.Linear]]:
    """Gate, up and down of every module that is these three and an activation that maps 0 to 0, and nothing else: a
    neuron down(act(gate(x)) * up(x)) is then nothing where its gate row or its up row is all zero, bias included."""
    for module in model.modules():
        gate, up, down = (getattr(module, name, None) for name in GATED)
        if not (type(gate) is nn.Linear and type(up) is nn.Linear and type(down) is nn.Linear):
            continue
        more = {name for name, _ in module.named_children()} - {*GATED, "act_fn"}
        if more or [*module.parameters(recurse=False)] or getattr(module, "activation_sparsity", None):
            continue
        activation = getattr(module, "act_fn", None)
        if callable(activation) and _keeps_zero(activation):
            yield gate, up, down


@lru_cache(maxsize=4096)  # asked for every cell
def _keeps_zero(activation: Callable[..., Any]) -> bool:
    return float(activation(torch.zeros(1))) == 0.0
