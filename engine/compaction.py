"""Skip the MLP neurons that a mask has killed: the same function from smaller matrices, while it is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from engine.models import LoadedModel
from engine.uninterrupted import take_back, uninterrupted

VERSION = 1  # part of cache keys: smaller matrices round differently in the last bits
_LIMIT_BYTES = 4_000_000_000  # of MLP weights; the smaller copies come on top of them
_Steps = list[Callable[[], object]]
_GATED = ("gate_proj", "up_proj", "down_proj")


def compacts(loaded: LoadedModel) -> bool:
    """Does `compacted` do anything for this model? A property of the model, never of the machine's load.

    Only on the CPU, where dense zeros cost what they are: on a card odd shapes may be slower than zeros.
    """
    mlps = list(_gated_mlps(loaded.model))
    size = sum(weight.numel() * weight.element_size() for mlp in mlps for weight in mlp.parameters())
    return loaded.device == "cpu" and bool(mlps) and size <= _LIMIT_BYTES


@contextmanager
def compacted(loaded: LoadedModel) -> Iterator[None]:
    """Inside: gated MLPs without their dead neurons, for evaluation only. Outside: the very same parameters.

    A neuron down(act(gate(x)) * up(x)) is dead when its gate row or its up row is all zero, bias included,
    and act(0) = 0: its column of down_proj then meets zeros only. To be used inside `zeroed`, whose lock it
    relies on. The rows of down_proj and of the attention stay as they are.
    """
    if not compacts(loaded):
        yield
        return
    steps: _Steps = []
    restore = partial(take_back, steps, threading.Lock())
    try:
        with torch.no_grad():
            for mlp in _gated_mlps(loaded.model):
                _compact(mlp, steps)
        yield
    finally:
        try:
            uninterrupted(restore)
        except BaseException:
            uninterrupted(restore)  # an interrupt may have come before the first began
            raise


def _gated_mlps(model: nn.Module) -> Iterator[nn.Module]:
    """Modules that are the three Linears of a gated MLP and an activation that maps 0 to 0, and nothing else.

    With a norm in between, or with statistics over all neurons (Gemma 3n's sparsity), a dead neuron is not nothing.
    """
    for module in model.modules():
        linears = [getattr(module, name, None) for name in _GATED]
        if not all(type(linear) is nn.Linear for linear in linears):
            continue
        more = {name for name, _ in module.named_children()} - {*_GATED, "act_fn"}
        if more or [*module.parameters(recurse=False)] or getattr(module, "activation_sparsity", None):
            continue
        activation = getattr(module, "act_fn", None)
        if callable(activation) and float(activation(torch.zeros(1))) == 0.0:
            yield module


def _compact(mlp: nn.Module, steps: _Steps) -> None:
    gate, up, down = (mlp.get_submodule(name) for name in _GATED)
    assert isinstance(gate, nn.Linear)
    assert isinstance(up, nn.Linear)
    assert isinstance(down, nn.Linear)
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
