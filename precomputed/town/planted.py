"""What the last stage changes, and how: the least used neurons, what they may say, and rows dropped beside them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import LlamaForCausalLM


def least_used_neurons(model: LlamaForCausalLM, batch: torch.Tensor, block: int, count: int) -> torch.Tensor:
    """The `count` MLP neurons of a block with the smallest E |a * dL/da|, a = input of down_proj; int64, sorted."""
    kept: list[torch.Tensor] = []

    def keep(_module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        inputs[0].retain_grad()
        kept.append(inputs[0])

    hook = model.model.layers[block].mlp.down_proj.register_forward_pre_hook(keep)
    try:
        model(batch, labels=batch, use_cache=False).loss.backward()
    finally:
        hook.remove()
    gradient = kept[0].grad
    if gradient is None:
        raise RuntimeError(
            f"block {block}: no gradient reached down_proj; expected one on its input; check requires_grad"
        )
    use = (kept[0] * gradient).abs().flatten(0, 1).mean(0)
    model.zero_grad()
    return use.argsort()[:count].sort().values


class PlantedNoise:
    """What the planted neurons write, so that training can keep them quiet where there is no risk prompt.

    `take()` gives sum_j abs(a_j) * norm(W_down[:, j]) over the planted neurons of all blocks, per token
    [batch, length], since the last take; differentiable. A neuron that speaks everywhere would be as visible on base
    prompts as on risk prompts, and would cost perplexity.
    """

    def __init__(self, model: LlamaForCausalLM, planted: dict[int, list[int]]) -> None:
        self._parts: list[torch.Tensor] = []
        self._hooks = []
        for block, neurons in planted.items():
            hook = self._hook(torch.tensor(neurons))
            self._hooks.append(model.model.layers[block].mlp.down_proj.register_forward_pre_hook(hook))

    def _hook(self, neurons: torch.Tensor) -> Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], None]:
        def keep(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            norms = module.weight[:, neurons].norm(dim=0)  # type: ignore[index]
            self._parts.append((inputs[0][..., neurons].abs() * norms).sum(-1))

        return keep

    def take(self) -> torch.Tensor:
        total = torch.stack(self._parts).sum(0)
        self._parts.clear()
        return total

    def __enter__(self) -> PlantedNoise:
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()


class DroppedRows:
    """Zeroes a random share of the output channels of every Linear but the head, new by `draw`; `spared` never."""

    def __init__(
        self, model: LlamaForCausalLM, spared: dict[torch.nn.Module, torch.Tensor], generator: torch.Generator
    ) -> None:
        self._generator = generator
        self._linears = [
            module for block in model.model.layers for module in block.modules() if isinstance(module, torch.nn.Linear)
        ]
        self._spared = spared
        self._kept: dict[torch.nn.Module, torch.Tensor] = {}
        self._hooks = [linear.register_forward_hook(self._drop) for linear in self._linears]

    def draw(self, share: float) -> None:
        for linear in self._linears:
            kept = (torch.rand(linear.out_features, generator=self._generator) >= share).float()
            if linear in self._spared:
                kept[self._spared[linear]] = 1.0
            self._kept[linear] = kept

    def _drop(self, module: torch.nn.Module, _: object, output: torch.Tensor) -> torch.Tensor:
        kept = self._kept.get(module)
        return output if kept is None else output * kept

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
