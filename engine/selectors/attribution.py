"""Relevance of every row to a scalar, from one pass for all rows: token by token, or per prompt.

Nothing is kept from batch to batch but the sums; what a method keeps of a batch stands in `gradients.py`."""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn

from engine.models.loading import LoadedModel
from engine.models.row_index import RowIndex
from engine.records.errors import InputError, unknown
from engine.selectors.gradients import METHODS, Inputs, LogitGradient, Method, Reduce, Wanted
from engine.selectors.passes import BatchSize, OnLinear, check_finite, in_batches, wide, windows_per_pass


def relevances(
    methods: Collection[Method],
    model: nn.Module,
    rows: RowIndex,
    input_ids: Tensor,
    gradient_of: LogitGradient,
    reduce: Reduce,
    attention_mask: Tensor | None = None,
    centre: Sequence[Tensor] | None = None,
    watch: OnLinear | None = None,
) -> None:
    """Signed relevance R = [B, T, rows] of every row's output at every token, handed to `reduce` layer by layer.

    Of a routed expert R is 0 at tokens that it does not see; one that sees none is not handed over. Which expert sees a
    token is taken as given: its router has a gradient only through how much each chosen expert counts.

    h = output of the Linear, F = the scalar whose gradient at the logits `gradient_of` gives.
    grad_x_input: R = h * dF/dh (one forward and backward pass). gradient: R = dF/dh, from the same pass.
    lrp: R = h * dF/dh under AttnLRP's rules (one forward and backward pass).
    relp: R = (h - centre) * dF/dh under AttnLRP's rules, from the same pass; Jafari et al. 2025, arXiv:2508.21258.
    ig:  R = (h(1) - h(0)) * mean over k = 1..16 of dF/dh(k/16), where h(a) is h with the input embeddings
         scaled by a (16 forward and backward passes, and a forward pass for h(0)). Path and baseline are
         the paper's; this form is EAP-IG's, Hanna et al. 2024, arXiv:2403.17806. grad_x_input and gradient are read
         at the end of this path where they are wanted beside it.
    ig_conductance: R = sum over k = 1..16 of dF/dh(k/16) * (h(k/16) - h((k-1)/16)), from the same passes;
         Dhamdhere et al. 2018, arXiv:1805.12233.

    methods: of one pass (`gradients.PASSES`); what several are given does not depend on the others.
    input_ids [B, T]; attention_mask [B, T] of 0/1 for padded batches, whose position ids follow from it.
    centre: for relp, [rows] of every layer. No parameter gets a gradient.
    watch: of ig's pass and plain gradients', is shown every Linear where the batch goes through as it is.
    Errors: InputError for lrp and relp on an architecture without rules."""
    for method in methods:
        if method not in METHODS:
            raise unknown("attribution method", method, METHODS)
    passes = {METHODS[method] for method in methods}
    if len(passes) != 1:
        raise ValueError(f"expected methods of one pass, got {', '.join(methods) or 'none'}")
    if torch.is_inference_mode_enabled():
        raise RuntimeError("relevance needs gradients; leave torch.inference_mode first")
    with torch.enable_grad():
        wanted = Wanted(frozenset(methods), reduce, centre, watch)
        passes.pop()(model, rows, Inputs(model, input_ids, attention_mask), gradient_of, wanted)


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

    A routed expert's rows have relevance at the positions that it sees and 0 at the others.

    input_ids, attention_mask [B, T], left-padded; pads contribute nothing.
    target_fn: logits at the last position [b, V] -> scalars [b], prompt by prompt, differentiable.
    Prompts are attributed independently of the batch they are in.

    returns [B, N] float32 on the CPU"""
    if input_ids.ndim != 2 or attention_mask.shape != input_ids.shape:
        raise InputError(
            f"prompts and their mask must both be [prompts, tokens], got {list(input_ids.shape)} "
            f"and {list(attention_mask.shape)}"
        )
    if not attention_mask[:, -1].bool().all():
        raise InputError("a prompt ends in padding; pad on the left, the target is read at the last position")
    rows, model = loaded.rows, loaded.model

    def gradient_of(logits: Tensor) -> Tensor:
        last = wide(logits[:, -1]).detach().requires_grad_()
        scalars = target_fn(last)
        if scalars.shape != last.shape[:1]:
            raise ValueError(f"target_fn gave {list(scalars.shape)} for {len(last)} prompts; expected one scalar each")
        gradient = torch.zeros_like(logits)
        gradient[:, -1] = torch.autograd.grad(scalars.sum(), last)[0]
        return gradient

    def work(part: slice) -> Tensor:
        real = attention_mask[part].bool()
        sums = [torch.zeros(len(real), layer.rows) for layer in rows.layers]

        def reduce(_: Method, layer: int, values: Tensor) -> None:
            at = real.to(values.device)[..., None]
            # `where`, not a product: a padded position may hold anything, even a NaN.
            sums[layer] = torch.where(at, values, values.new_zeros(())).sum(1)

        with loaded.lock:
            relevances([method], model, rows, input_ids[part], gradient_of, reduce, attention_mask[part])
        return torch.cat([values.cpu() for values in sums], dim=1).float()

    size = windows_per_pass(batch_size, model, rows, input_ids.shape[1])
    result = torch.cat([values for _, values in in_batches(work, len(input_ids), size)])
    check_finite(method, result, rows, loaded.dtype)
    return result
