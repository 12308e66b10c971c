"""AttnLRP written down once more, for decoders of Llama's kind: detached factors in the place of lxt's gradients.

Each rule as the paper states it, in the gradient x input form: a product a * b hands half of its relevance to each
factor, an element-wise function f(x) is x times the constant f(x) / x, a norm is its input times a constant; softmax
keeps its own derivative. Where norms stand and which layers have rotary positions is said per family here, not read.
"""

from typing import Any

import torch
from torch import Tensor


def half(product: Any, one: Tensor, other: Tensor) -> Tensor:
    """product(one, other), whose relevance goes to both factors in equal parts."""
    return (product(one, other.detach()) + product(one.detach(), other)) / 2


def norm(module: Any, x: Tensor) -> Tensor:
    gemma = hasattr(module, "_norm")
    eps, weight = (module.eps, module.weight + 1) if gemma else (module.variance_epsilon, module.weight)
    return weight * x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt().detach()


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-right, left], -1) * sin[:, None]


class Slow:
    """Relevances of every Linear's output of `model` to the sum of `gradient` * logits, by their module names."""

    def __init__(self, model: Any, *, after: bool, factor: float, rotary: tuple[bool, ...], window: int | None) -> None:
        """after: norms after attention and MLP instead of before. factor: of both before they are added.
        rotary: per layer. window: of layers with sliding attention."""
        self.model, self.after, self.factor, self.rotary, self.window = model, after, factor, rotary, window
        self.outputs: dict[str, Tensor] = {}

    def linear(self, name: str, x: Tensor) -> Tensor:
        self.outputs[name] = self.model.get_submodule(name)(x)
        return self.outputs[name]

    def attention(self, number: int, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        module, path = self.model.model.layers[number].self_attn, f"model.layers.{number}.self_attn"
        parts = []
        for letter in "qkv":
            part = self.linear(f"{path}.{letter}_proj", x)
            norms = getattr(module, f"{letter}_norm", None)
            whole = norms is not None and norms.weight.shape[-1] == part.shape[-1]
            part = norm(norms, part) if whole else part
            part = part.unflatten(-1, (-1, module.head_dim))
            part = norm(norms, part) if norms is not None and not whole else part
            part = part.transpose(1, 2)
            if letter != "v" and self.rotary[number]:
                part = turned(part, cos, sin)
            parts.append(part)
        query, key, value = parts
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = half(torch.matmul, query, key.transpose(2, 3)) * module.scaling
        place = torch.arange(x.shape[1])
        hidden = place[None] > place[:, None]
        if self.window and module.config.layer_types[number] == "sliding_attention":
            hidden |= place[None] <= place[:, None] - self.window
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        mixed = half(torch.matmul, weights, value).transpose(1, 2).flatten(2)
        return self.linear(f"{path}.o_proj", mixed)

    def mlp(self, number: int, x: Tensor) -> Tensor:
        path = f"model.layers.{number}.mlp"
        gate = self.linear(f"{path}.gate_proj", x)
        activated = self.model.model.layers[number].mlp.act_fn(gate)
        gate = gate * (activated / gate).detach()
        return self.linear(f"{path}.down_proj", half(torch.mul, gate, self.linear(f"{path}.up_proj", x)))

    def logits(self, input_ids: Tensor, multiplier: float, divisor: float) -> Tensor:
        decoder = self.model.model
        x = (decoder.embed_tokens(input_ids) * multiplier).detach().requires_grad_()
        cos, sin = decoder.rotary_emb(x, torch.arange(input_ids.shape[1])[None])
        for number, layer in enumerate(decoder.layers):
            if self.after:
                x = x + self.factor * norm(layer.post_attention_layernorm, self.attention(number, x, cos, sin))
                x = x + self.factor * norm(layer.post_feedforward_layernorm, self.mlp(number, x))
            else:
                x = x + self.factor * self.attention(number, norm(layer.input_layernorm, x), cos, sin)
                x = x + self.factor * self.mlp(number, norm(layer.post_attention_layernorm, x))
        return self.model.lm_head(norm(decoder.norm, x)) / divisor

    def relevances(self, gradient: Tensor, logits: Tensor) -> dict[str, Tensor]:
        names = list(self.outputs)
        found = torch.autograd.grad(logits, [self.outputs[name] for name in names], gradient)
        return {name: self.outputs[name].detach() * one for name, one in zip(names, found, strict=True)}
