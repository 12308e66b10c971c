"""One batch through the model, and what comes back at every Linear: one function per attribution method.

Memory, besides the scores: lrp and grad_x_input keep what one forward and backward pass of the batch keeps.
For N rows and B windows of T tokens, ig keeps one more vector per token, B * T * N float32 (the sum of the
gradients so far); ig_conductance keeps two (the sum so far, and the outputs at the step before in the model's
dtype). They go as soon as a layer is reduced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor, nn

from engine.attnlrp import attn_lrp, plain_gradients
from engine.errors import InputError
from engine.rows import RowIndex
from engine.selectors.passes import embed, watching, wide

Method = Literal["lrp", "ig", "grad_x_input", "ig_conductance"]
IG_STEPS = 16
LogitGradient = Callable[[Tensor], Tensor]  # logits -> dF/dlogits, of the same shape
Reduce = Callable[[int, Tensor], None]  # layer index, relevance [B, T, rows of the layer] float32


class Inputs:
    """One batch as the model takes it, its embeddings scalable."""

    def __init__(self, model: nn.Module, input_ids: Tensor, attention_mask: Tensor | None) -> None:
        self.embeddings = embed(model, input_ids)  # [B, T, d]
        self.arguments: dict[str, Tensor] = {}
        if attention_mask is not None:
            mask = attention_mask.to(self.embeddings.device)
            self.arguments = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}

    @property
    def positions(self) -> tuple[int, int]:
        return self.embeddings.shape[0], self.embeddings.shape[1]

    def by_token(self, values: Tensor) -> Tensor:
        """[..., d] as [B, T, d]: some architectures flatten batch and tokens inside a block."""
        return values.view(*self.positions, -1)

    def logits(self, model: nn.Module, embeddings: Tensor) -> Tensor:
        return model(inputs_embeds=embeddings, use_cache=False, **self.arguments).logits

    def backward(self, model: nn.Module, scale: float, gradient_of: LogitGradient) -> None:
        """One forward and backward pass, for what the hooks on the way see of it."""
        start = (self.embeddings * scale).requires_grad_()
        logits = self.logits(model, start)
        torch.autograd.grad(logits, start, gradient_of(logits.detach()))


def lrp(model: nn.Module, rows: RowIndex, inputs: Inputs, gradient_of: LogitGradient, reduce: Reduce) -> None:
    """R = h * dF/dh under AttnLRP's rules."""
    with attn_lrp(model):
        _gradient_times_output(model, rows, inputs, gradient_of, reduce)


def grad_x_input(
    model: nn.Module, rows: RowIndex, inputs: Inputs, gradient_of: LogitGradient, reduce: Reduce
) -> None:
    """R = h * dF/dh."""
    with plain_gradients():
        _gradient_times_output(model, rows, inputs, gradient_of, reduce)


def _gradient_times_output(
    model: nn.Module, rows: RowIndex, inputs: Inputs, gradient_of: LogitGradient, reduce: Reduce
) -> None:
    reached: set[int] = set()

    def on_linear(layer: int, _: Tensor, output: Tensor) -> None:
        h = output.detach()

        def finish(gradient: Tensor) -> None:
            reached.add(layer)
            reduce(layer, inputs.by_token(wide(h) * wide(gradient)))

        output.register_hook(finish)

    with watching(model, rows, inputs.positions, on_linear):
        inputs.backward(model, 1.0, gradient_of)
    _check_reached(rows, reached)


def ig(model: nn.Module, rows: RowIndex, inputs: Inputs, gradient_of: LogitGradient, reduce: Reduce) -> None:
    """R = (h(1) - h(0)) * mean over k = 1..16 of dF/dh(k/16)."""
    baseline = _outputs_at_zero(model, rows, inputs)
    sums: dict[int, Tensor] = {}
    reached: set[int] = set()

    def add(layer: int, gradient: Tensor) -> None:
        if layer in sums:
            sums[layer] += gradient
        else:
            sums[layer] = wide(gradient).clone()

    def on_linear(layer: int, _: Tensor, output: Tensor) -> None:
        output.register_hook(lambda gradient: add(layer, gradient))

    def on_last(layer: int, _: Tensor, output: Tensor) -> None:
        h = output.detach()

        def finish(gradient: Tensor) -> None:
            reached.add(layer)
            mean = inputs.by_token(sums.pop(layer) + gradient) / IG_STEPS
            reduce(layer, (inputs.by_token(wide(h)) - baseline.pop(layer)) * mean)

        output.register_hook(finish)

    for step in range(1, IG_STEPS + 1):
        hook = on_last if step == IG_STEPS else on_linear
        with plain_gradients(), watching(model, rows, inputs.positions, hook):
            inputs.backward(model, step / IG_STEPS, gradient_of)
    _check_reached(rows, reached)


def ig_conductance(
    model: nn.Module, rows: RowIndex, inputs: Inputs, gradient_of: LogitGradient, reduce: Reduce
) -> None:
    """R = sum over k = 1..16 of dF/dh(k/16) * (h(k/16) - h((k-1)/16))."""
    before = _outputs_at_zero(model, rows, inputs)  # h at the step before
    sums: dict[int, Tensor] = {}
    reached: set[int] = set()

    def watcher(last: bool) -> Callable[[int, Tensor, Tensor], None]:
        def on_linear(layer: int, _: Tensor, output: Tensor) -> None:
            h = inputs.by_token(output.detach())

            def add(gradient: Tensor) -> None:
                part = inputs.by_token(wide(gradient)) * (wide(h) - wide(before.pop(layer)))
                total = sums.pop(layer) + part if layer in sums else part
                if last:
                    reached.add(layer)
                    reduce(layer, total)
                else:
                    sums[layer], before[layer] = total, h

            output.register_hook(add)

        return on_linear

    for step in range(1, IG_STEPS + 1):
        with (
            plain_gradients(),
            watching(model, rows, inputs.positions, watcher(last=step == IG_STEPS)),
        ):
            inputs.backward(model, step / IG_STEPS, gradient_of)
    _check_reached(rows, reached)


def _check_reached(rows: RowIndex, reached: set[int]) -> None:
    """A layer that no gradient reaches would get zeros, which look like scores."""
    for layer in rows.layers:
        if layer.index not in reached:
            raise InputError(
                f"no gradient reaches {layer.name}, so its rows cannot be attributed; "
                "the selectors wanda and mean_activation need none"
            )


def _outputs_at_zero(model: nn.Module, rows: RowIndex, inputs: Inputs) -> dict[int, Tensor]:
    """h(0) of every layer, [1 or B, T, rows] float32.

    At zero embeddings only positions and biases are left, so that unpadded windows all share one.
    """
    outputs: dict[int, Tensor] = {}

    def on_linear(layer: int, _: Tensor, output: Tensor) -> None:
        outputs[layer] = wide(output).view(*zeros.shape[:2], -1)

    zeros = torch.zeros_like(inputs.embeddings if inputs.arguments else inputs.embeddings[:1])
    guard: AbstractContextManager[None] = torch.no_grad()
    with guard, watching(model, rows, (zeros.shape[0], zeros.shape[1]), on_linear):
        inputs.logits(model, zeros)
    return outputs


METHODS = {"lrp": lrp, "ig": ig, "grad_x_input": grad_x_input, "ig_conductance": ig_conductance}
