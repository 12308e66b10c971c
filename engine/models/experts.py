"""Weights that are stored otherwise, shown as Linears that the model runs through: GPT-2's Conv1D, and routed experts
whose weights lie in fused tensors.

transformers keeps the experts of a block in two tensors, gate_up_proj [experts, 2 d_ff, d] and down_proj
[experts, d, d_ff] (Mixtral, Qwen3-MoE, OLMoE, DeepSeek, ...); of some models the last two axes are swapped and the gate
and up rows alternate (gpt-oss). Here each expert gets modules gate_proj, up_proj and down_proj whose weights are views
of its slices: zeroing a row of them changes the model itself, nothing is stored twice, and nothing is saved with them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.models.forwards import set_forward


@dataclass(frozen=True)
class Slice:
    """Where the rows of one projection of one expert lie in a fused tensor [experts, ...]. tensor: the name of the
    parameter. swapped: stored [d_in, d_out]. start, step: of the rows. count: how many they are."""

    tensor: str
    expert: int
    swapped: bool
    start: int
    step: int
    count: int

    def of(self, fused: Any) -> Any:
        """A view, rows first: [rows, d_in, ...] of a weight, [rows, ...] of a bias. fused: a torch or numpy array."""
        own_weights = fused[self.expert]
        rows = own_weights.swapaxes(0, 1) if self.swapped else own_weights
        return rows[self.start : self.start + self.step * self.count : self.step]


class ExpertLinear(nn.Linear):
    """One projection of one expert: a Linear whose weight and bias are views of the fused tensors. Called with the
    inputs [n, d_in] of the n tokens that the expert sees, and with `tokens` [n], their numbers in the batch of B *
    T."""

    def __init__(self, experts: nn.Module, weight: Slice, bias: Slice | None, in_features: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, weight.count
        self.weight_slice, self.bias_slice = weight, bias
        self._experts = (experts,)  # in a tuple: not a child of this module

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.weight_slice.of(self._experts[0].get_parameter(self.weight_slice.tensor))

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]
        if self.bias_slice is None:
            return None
        return self.bias_slice.of(self._experts[0].get_parameter(self.bias_slice.tensor))

    def forward(self, input: Tensor, tokens: Tensor | None = None) -> Tensor:
        return functional.linear(input, self.weight, self.bias)


class Expert(nn.Module):
    """The projections of one expert: up_proj, down_proj, and gate_proj where it is gated."""


def show_experts(block: nn.Module) -> None:
    """Every fused set of experts below a module gets its experts as children `0`, `1`, ..., and runs through them: per
    expert the tokens that chose it, their sum in the wider of the dtypes of the hidden states and of the router's
    weights, as in transformers' own eager pass. Nothing the second time."""
    for module in list(block.modules()):
        if _is_fused(module) and not fused(module):
            for number in range(len(module.get_parameter("down_proj"))):
                module.add_module(str(number), _expert(module, number))
            set_forward(module, _through_experts)


def fused(module: nn.Module) -> bool:
    """Does it hold fused experts that `show_experts` has shown?"""
    return any(isinstance(child, Expert) for child in module.children())


def routed(linear: nn.Module) -> bool:
    """Does it see only the tokens that are routed to its expert?"""
    return isinstance(linear, ExpertLinear)


def has_experts(model: nn.Module) -> bool:
    """Has any of its blocks routed experts that are rows?"""
    return any(fused(module) for module in model.modules())


def gated_experts(model: nn.Module) -> Iterator[tuple[nn.Linear, nn.Linear, nn.Linear]]:
    """Gate, up and down of every expert whose neurons are act(gate) * up with an activation of 0 at 0."""
    from transformers.integrations.moe import _default_apply_gate

    for module in model.modules():
        own_gate = getattr(type(module), "_apply_gate", None) is not _default_apply_gate
        if not fused(module) or not module.has_gate or own_gate:
            continue
        activation = getattr(module, "act_fn", None)
        if callable(activation) and float(activation(torch.zeros(1))) == 0.0:
            for expert in module.children():
                if isinstance(expert, Expert):
                    yield expert.gate_proj, expert.up_proj, expert.down_proj  # type: ignore[misc]


def _is_fused(module: Any) -> bool:
    """Is it a set of experts in the layout that transformers' `use_experts_implementation` declares?"""
    down = getattr(module, "down_proj", None)
    declared = all(hasattr(module, name) for name in ("has_gate", "has_bias", "is_transposed", "is_concatenated"))
    return declared and isinstance(down, nn.Parameter) and down.ndim == 3


def _expert(module: Any, number: int) -> Expert:
    swapped = module.is_transposed
    d_model, d_ff = module.down_proj.shape[1:][::-1] if swapped else module.down_proj.shape[1:]
    if not module.has_gate:
        inner = {"up_proj": ("up_proj", 0, 1)}
    elif module.is_concatenated:
        inner = {"gate_proj": ("gate_up_proj", 0, 1), "up_proj": ("gate_up_proj", d_ff, 1)}
    else:
        inner = {"gate_proj": ("gate_up_proj", 0, 2), "up_proj": ("gate_up_proj", 1, 2)}
    inner_inputs = next(iter(inner.values()))[0]
    d_in = getattr(module, inner_inputs).shape[1 if swapped else 2]
    expert = Expert()
    for name, (tensor, start, step) in inner.items():
        expert.add_module(name, _linear(module, tensor, number, start, step, d_ff, d_in))
    expert.add_module("down_proj", _linear(module, "down_proj", number, 0, 1, d_model, d_ff))
    return expert


def _linear(module: Any, tensor: str, number: int, start: int, step: int, count: int, d_in: int) -> ExpertLinear:
    weight = Slice(tensor, number, module.is_transposed, start, step, count)
    bias = Slice(f"{tensor}_bias", number, False, start, step, count) if module.has_bias else None
    return ExpertLinear(module, weight, bias, d_in).train(module.training)


def _through_experts(module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """hidden [tokens, d]; chosen, weights [tokens, k]: the experts of each token and what each counts. [tokens, d]"""
    total = torch.zeros_like(hidden, dtype=torch.promote_types(hidden.dtype, weights.dtype))
    for number in chosen.unique().tolist():
        if number >= len(module.down_proj):  # a token that another device's expert would see
            continue
        place, tokens = (number == chosen.T).nonzero(as_tuple=True)
        output = _said(module, getattr(module, str(number)), hidden[tokens], tokens)
        total.index_add_(0, tokens, (output * weights[tokens, place, None]).to(total.dtype))
    return total.to(hidden.dtype)


def _said(module: Any, expert: Any, states: Tensor, tokens: Tensor) -> Tensor:
    """What one expert says of the tokens that it sees. [n, d] -> [n, d]"""
    up = expert.up_proj(states, tokens)
    if not module.has_gate:
        inner = module.act_fn(up)
    else:
        gate = expert.gate_proj(states, tokens)
        # The family's own gate takes them as its tensor has them.
        both = torch.cat([gate, up], -1) if module.is_concatenated else torch.stack([gate, up], -1).flatten(-2)
        inner = module._apply_gate(both)
    output = expert.down_proj(inner, tokens)
    return module.post_expert_norm(output) if getattr(module, "has_post_expert_norm", False) else output


class TransposedLinear(nn.Linear):
    """transformers' `Conv1D` with a Linear's names. Stored, saved and moved as before: weight [d_in, d_out]. weight
    [d_out, d_in] is a view of it, so that zeroing a row zeroes a column of what is stored."""

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        stored = self._parameters["weight"]
        assert stored is not None
        return stored.T


def show_conv1d(block: nn.Module) -> None:
    """Every Conv1D below a module becomes a `TransposedLinear`, in place; nothing the second time."""
    from transformers.pytorch_utils import Conv1D

    for module in block.modules():
        if type(module) is Conv1D:
            module.in_features, module.out_features = module.nx, module.nf
            module.__class__ = TransposedLinear  # type: ignore[assignment]
            set_forward(module, TransposedLinear.forward)
