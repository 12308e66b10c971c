"""Skip the MLP neurons that a mask has killed: the same function from smaller matrices, while it is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from engine.interventions.uninterrupted import take_back, uninterrupted
from engine.models.gated_mlps import gated_mlps
from engine.models.loading import LoadedModel

VERSION = 1  # part of cache keys: smaller matrices round differently in the last bits
_LIMIT_BYTES = 4_000_000_000  # of MLP weights; the smaller copies come on top of them
_Steps = list[Callable[[], object]]


def compacts(loaded: LoadedModel) -> bool:
    """Does `compacted` do anything for this model? A property of the model, never of the machine's load.

    Only on the CPU, where dense zeros cost what they are: on a card odd shapes may be slower than zeros.
    """
    linears = [linear for mlp in gated_mlps(loaded.model) for linear in mlp]
    size = sum(weight.numel() * weight.element_size() for linear in linears for weight in linear.parameters())
    return loaded.device == "cpu" and bool(linears) and size <= _LIMIT_BYTES


@contextmanager
def compacted(loaded: LoadedModel) -> Iterator[None]:
    """Inside: gated MLPs without their dead neurons, for evaluation only. Outside: the very same parameters.

    A neuron is dead when its gate row or its up row is all zero: its column of down_proj then meets zeros only.
    To be used inside `zeroed`, whose lock it relies on. The rows of down_proj and of the attention stay as they are.
    """
    if not compacts(loaded):
        yield
        return
    steps: _Steps = []
    restore = partial(take_back, steps, threading.Lock())
    try:
        with torch.no_grad():
            for gate, up, down in gated_mlps(loaded.model):
                _compact(gate, up, down, steps)
        yield
    finally:
        try:
            uninterrupted(restore)
        except BaseException:
            uninterrupted(restore)  # an interrupt may have come before the first began
            raise


def _compact(gate: nn.Linear, up: nn.Linear, down: nn.Linear, steps: _Steps) -> None:
    alive = _alive_rows(gate) & _alive_rows(up)
    if alive.all():
        return
    kept = alive.nonzero().flatten()
    for linear in (gate, up):
        _swap(linear, "weight", linear.weight[kept], steps)
        if linear.bias is not None:
            _swap(linear, "bias", linear.bias[kept], steps)
    _swap(down, "weight", down.weight[:, kept].contiguous(), steps)


def _alive_rows(linear: nn.Linear) -> Tensor:
    alive = (linear.weight != 0).any(dim=1)
    return alive if linear.bias is None else alive | (linear.bias != 0)


def _swap(linear: nn.Linear, name: str, values: Tensor, steps: _Steps) -> None:
    steps.append(partial(setattr, linear, name, getattr(linear, name)))
    setattr(linear, name, nn.Parameter(values, requires_grad=False))
