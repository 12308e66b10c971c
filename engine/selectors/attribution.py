"""Relevance of every row to a scalar, from one pass for all rows: AttnLRP and integrated gradients.

Memory: lrp keeps what one forward and backward pass of the batch keeps. ig keeps besides, for the batch,
one running sum of gradients per Linear output, B * T * N float32 for N rows; both go as soon as a layer
is reduced. Nothing is kept from batch to batch but the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from engine.attnlrp import attn_lrp, plain_gradients
from engine.errors import InputError, unknown
from engine.rows import RowIndex
from engine.selectors.checks import check_finite
from engine.selectors.passes import BatchSize, embed, in_batches, watching, wide, windows_per_pass

if TYPE_CHECKING:
    from engine.models import LoadedModel

Method = Literal["lrp", "ig"]
IG_STEPS = 16
LogitGradient = Callable[[Tensor], Tensor]  # logits -> dF/dlogits, of the same shape
Reduce = Callable[[int, Tensor], None]  # layer index, relevance [B, T, rows of the layer] float32


def relevance(
    method: Method,
    model: nn.Module,
    rows: RowIndex,
    input_ids: Tensor,
    gradient_of: LogitGradient,
    reduce: Reduce,
    attention_mask: Tensor | None = None,
) -> None:
    """Signed relevance R = [B, T, rows] of every row's output at every token, handed to `reduce` layer by layer.

    h = output of the Linear, F = the scalar whose gradient at the logits `gradient_of` gives.
    lrp: R = h * dF/dh under AttnLRP's rules (one forward and backward pass).
    ig:  R = (h(1) - h(0)) * mean over k = 1..16 of dF/dh(k/16), where h(a) is h with the input embeddings
         scaled by a (16 forward and backward passes, and a forward pass for h(0)). Path and baseline are
         the paper's; this form is EAP-IG's, Hanna et al. 2024, arXiv:2403.17806.

    input_ids [B, T]; attention_mask [B, T] of 0/1 for padded batches, whose position ids follow from it.
    No parameter gets a gradient. Errors: InputError for lrp on an architecture without rules.
    """
    if method not in _METHODS:
        raise unknown("attribution method", method, _METHODS)
    if torch.is_inference_mode_enabled():
        raise RuntimeError("relevance needs gradients; leave torch.inference_mode first")
    with torch.enable_grad():
        _METHODS[method](model, rows, _Inputs(model, input_ids, attention_mask), gradient_of, reduce)


def per_prompt_relevance(
    loaded: LoadedModel,
    method: Method,
    input_ids: Tensor,
    attention_mask: Tensor,
    target_fn: Callable[[Tensor], Tensor],
    *,
    batch_size: BatchSize = "auto",
) -> Tensor:
    """Signed relevance of every row to a scalar of each prompt, summed over the prompt's real positions.

    input_ids, attention_mask [B, T], left-padded; pads contribute nothing.
    target_fn: logits at the last position [b, V] -> scalars [b], prompt by prompt, differentiable.
    Prompts are attributed independently of the batch they are in.

    returns [B, N] float32 on the CPU
    """
    _check_left_padded(input_ids, attention_mask)
    rows, model = loaded.rows, loaded.model

    def gradient_of(logits: Tensor) -> Tensor:
        last = wide(logits[:, -1]).detach().requires_grad_()
        scalars = target_fn(last)
        if scalars.shape != last.shape[:1]:
            raise ValueError(
                f"target_fn gave {list(scalars.shape)} for {len(last)} prompts; expected one scalar each"
            )
        gradient = torch.zeros_like(logits)
        gradient[:, -1] = torch.autograd.grad(scalars.sum(), last)[0]
        return gradient

    def work(part: slice) -> Tensor:
        sums: list[Tensor] = [torch.empty(0)] * len(rows.layers)
        real = attention_mask[part].bool()

        def reduce(layer: int, values: Tensor) -> None:
            at = real.to(values.device)[..., None]
            # `where`, not a product: a padded position may hold anything, even a NaN.
            sums[layer] = torch.where(at, values, values.new_zeros(())).sum(1)

        with loaded.lock:
            relevance(method, model, rows, input_ids[part], gradient_of, reduce, attention_mask[part])
        return torch.cat([values.cpu() for values in sums], dim=1).float()

    size = windows_per_pass(batch_size, model, rows, input_ids.shape[1])
    result = torch.cat([values for _, values in in_batches(work, len(input_ids), size)])
    check_finite(method, result, rows, loaded.dtype)
    return result


class _Inputs:
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


def _lrp(
    model: nn.Module, rows: RowIndex, inputs: _Inputs, gradient_of: LogitGradient, reduce: Reduce
) -> None:
    reached: set[int] = set()

    def on_linear(layer: int, _: Tensor, output: Tensor) -> None:
        h = output.detach()

        def finish(gradient: Tensor) -> None:
            reached.add(layer)
            reduce(layer, inputs.by_token(wide(h) * wide(gradient)))

        output.register_hook(finish)

    with attn_lrp(model), watching(model, rows, inputs.positions, on_linear):
        inputs.backward(model, 1.0, gradient_of)
    _check_reached(rows, reached)


def _ig(
    model: nn.Module, rows: RowIndex, inputs: _Inputs, gradient_of: LogitGradient, reduce: Reduce
) -> None:
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


def _check_reached(rows: RowIndex, reached: set[int]) -> None:
    """A layer that no gradient reaches would get zeros, which look like scores."""
    for layer in rows.layers:
        if layer.index not in reached:
            raise InputError(
                f"no gradient reaches {layer.name}, so its rows cannot be attributed; "
                "the selectors wanda and mean_activation need none"
            )


def _outputs_at_zero(model: nn.Module, rows: RowIndex, inputs: _Inputs) -> dict[int, Tensor]:
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


_METHODS = {"lrp": _lrp, "ig": _ig}


def _check_left_padded(input_ids: Tensor, attention_mask: Tensor) -> None:
    if input_ids.ndim != 2 or attention_mask.shape != input_ids.shape:
        raise InputError(
            f"prompts and their mask must both be [prompts, tokens], got {list(input_ids.shape)} "
            f"and {list(attention_mask.shape)}"
        )
    if not attention_mask[:, -1].bool().all():
        raise InputError("a prompt ends in padding; pad on the left, the target is read at the last position")
