"""Relevance of every row to a scalar, token by token, or per prompt: one batch through the model, and what comes back
at every Linear. Nothing is kept from batch to batch but the sums. One function per pass.

A pass serves all methods that need its gradients: `PASSES`. Plain gradients are those at the end of ig's path, so that
one walk gives both. Memory, besides the scores: plain gradients and AttnLRP's keep what one forward and backward pass
of the batch keeps. For N rows and B windows of T tokens, ig keeps one more
vector per token, B * T * N float32 (the sum of the gradients so far); ig_conductance keeps two (the sum so far, and the
outputs at the step before in the model's dtype). They go as soon as a layer is reduced."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from engine.models.attnlrp import attn_lrp, check_rules, plain_gradients
from engine.models.experts import routed
from engine.models.loading import LoadedModel
from engine.models.row_index import RowIndex
from engine.records.errors import InputError, unknown
from engine.selectors.passes import (
    BatchSize,
    OnLinear,
    Seen,
    check_finite,
    embed,
    in_batches,
    watching,
    wide,
    windows_per_pass,
)

Method = Literal["grad_x_input", "gradient", "lrp", "relp", "ig", "ig_conductance"]
IG_STEPS = 16
LogitGradient = Callable[[Tensor], Tensor]  # logits -> dF/dlogits, of the same shape
Reduce = Callable[[Method, int, Tensor], None]  # method, layer index, relevance [B, T, rows of the layer] float32


@dataclass(frozen=True)
class Wanted:
    """What a pass hands out: the relevance of these methods, each layer's to `reduce`.

    centre: per layer [rows], the output that relp takes the difference to; None where relp is not wanted.
    watch: is shown every Linear where the batch goes through as it is, under plain gradients: at the end of ig's path.
    """

    methods: Collection[Method]
    reduce: Reduce
    centre: Sequence[Tensor] | None = None
    watch: OnLinear | None = None


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

    def logits(self, model: nn.Module, embeddings: Tensor) -> Tensor:
        return model(inputs_embeds=embeddings, use_cache=False, **self.arguments).logits

    def backward(self, model: nn.Module, scale: float, gradient_of: LogitGradient) -> None:
        """One forward and backward pass, for what the hooks on the way see of it."""
        start = (self.embeddings * scale).requires_grad_()
        logits = self.logits(model, start)
        torch.autograd.grad(logits, start, gradient_of(logits.detach()))


def lrp(model: nn.Module, rows: RowIndex, inputs: Inputs, gradient_of: LogitGradient, wanted: Wanted) -> None:
    """lrp: R = h * dF/dh under AttnLRP's rules. relp: R = (h - centre) * dF/dh under the same."""
    centre = wanted.centre
    if "relp" in wanted.methods and centre is None:
        raise ValueError("relp takes the difference to a mean output; give centre, one tensor [rows] per layer")

    reached: set[int] = set()
    ran: set[int] = set()

    def on_linear(layer: int, _: Tensor, output: Tensor, seen: Seen) -> None:
        ran.add(layer)
        detached = output.detach()

        def finish(gradient_there: Tensor) -> None:
            reached.add(layer)
            h, gradient = seen.by_token(detached), seen.by_token(wide(gradient_there))  # one wide factor is enough
            if "lrp" in wanted.methods:
                wanted.reduce("lrp", layer, h * gradient)
            if "relp" in wanted.methods and centre is not None:
                wanted.reduce("relp", layer, (wide(h) - centre[layer].to(gradient.dtype).to(h.device)) * gradient)

        output.register_hook(finish)

    with attn_lrp(model), watching(model, rows, inputs.positions, on_linear):
        inputs.backward(model, 1.0, gradient_of)
    _check_reached(rows, ran, reached)


def path(model: nn.Module, rows: RowIndex, inputs: Inputs, gradient_of: LogitGradient, wanted: Wanted) -> None:
    """Along h(k/16), k = 1..16, the outputs with the input embeddings scaled by k/16, under plain gradients.

    ig: R = (h(1) - h(0)) * mean_k dF/dh(k/16). ig_conductance: R = sum_k dF/dh(k/16) * (h(k/16) - h((k-1)/16)).
    grad_x_input: R = h(1) * dF/dh(1). gradient: R = dF/dh(1). These two need the path's end only, and without the
    others nothing else of it is walked."""
    ig, conductance = "ig" in wanted.methods, "ig_conductance" in wanted.methods
    at_zero: dict[int, Tensor] = {}
    if ig or conductance:
        check_path(model, rows)
        at_zero = _outputs_at_zero(model, rows, inputs)
    before = dict(at_zero) if conductance else {}  # h at the step before
    if not ig:
        at_zero.clear()
    gradients: dict[int, Tensor] = {}  # their sum so far
    moved: dict[int, Tensor] = {}  # the conductance so far
    ran: set[int] = set()
    reached: set[int] = set()

    def add(layer: int, h: Tensor, gradient: Tensor, last: bool) -> None:
        if conductance:
            contribution = (wide(h) - wide(before.pop(layer))).mul_(gradient)
            moved[layer] = moved[layer].add_(contribution) if layer in moved else contribution
            if last:
                wanted.reduce("ig_conductance", layer, moved.pop(layer))
            else:
                before[layer] = h
        if ig:
            gradients[layer] = gradients[layer].add_(gradient) if layer in gradients else wide(gradient.clone())
            if last:
                wanted.reduce("ig", layer, (wide(h) - at_zero.pop(layer)) * (gradients.pop(layer) / IG_STEPS))
        if last and "grad_x_input" in wanted.methods:
            wanted.reduce("grad_x_input", layer, wide(h) * gradient)
        if last and "gradient" in wanted.methods:
            wanted.reduce("gradient", layer, wide(gradient))

    def on_linear(last: bool, layer: int, given: Tensor, output: Tensor, seen: Seen) -> None:
        if last and wanted.watch is not None:
            with torch.no_grad():
                wanted.watch(layer, given.detach(), output.detach(), seen)
        # Without conductance no output but the last is needed: none is kept alive until the backward pass.
        h = seen.by_token(output.detach()) if conductance or last else output.new_empty(0)
        if last:
            ran.add(layer)

        def finish(gradient: Tensor) -> None:
            add(layer, h, seen.by_token(gradient), last)
            if last:
                reached.add(layer)

        output.register_hook(finish)

    for step in range(1 if ig or conductance else IG_STEPS, IG_STEPS + 1):
        watcher = partial(on_linear, step == IG_STEPS)
        with plain_gradients(), watching(model, rows, inputs.positions, watcher):
            inputs.backward(model, step / IG_STEPS, gradient_of)
    _check_reached(rows, ran, reached)


def check_method(method: str, loaded: LoadedModel) -> None:
    """`InputError` where the method cannot attribute such a model; needs no weights."""
    if method in ("lrp", "relp"):
        with loaded.lock:
            check_rules(loaded.model)
    elif method in ("ig", "ig_conductance"):
        check_path(loaded.model, loaded.rows)


def check_path(model: nn.Module, rows: RowIndex) -> None:
    """`InputError` where a path of scaled embeddings has no outputs to follow."""
    first = next((layer for layer in rows.layers if routed(model.get_submodule(layer.name))), None)
    if first is not None:
        raise InputError(
            f"ig and ig_conductance cannot score a model with routed experts ({first.name}): which expert sees a token "
            "changes as the embeddings are scaled, so an expert has no output along the path; grad_x_input can"
        )


def _check_reached(rows: RowIndex, ran: set[int], reached: set[int]) -> None:
    """A layer that runs and that no gradient reaches would get zeros, which look like scores."""
    for layer in rows.layers:
        if layer.index in ran and layer.index not in reached:
            raise InputError(
                f"no gradient reaches {layer.name}, so its rows cannot be attributed; "
                "the selectors wanda and mean_activation need none"
            )


def _outputs_at_zero(model: nn.Module, rows: RowIndex, inputs: Inputs) -> dict[int, Tensor]:
    """h(0) of every layer, [1 or B, T, rows] float32.
    At zero embeddings only positions and biases are left, so that unpadded windows all share one."""
    outputs: dict[int, Tensor] = {}

    def on_linear(layer: int, _: Tensor, output: Tensor, seen: Seen) -> None:
        outputs[layer] = seen.by_token(wide(output))

    zeros = torch.zeros_like(inputs.embeddings if inputs.arguments else inputs.embeddings[:1])
    with torch.no_grad(), watching(model, rows, (zeros.shape[0], zeros.shape[1]), on_linear):
        inputs.logits(model, zeros)
    return outputs


Pass = Callable[[nn.Module, RowIndex, Inputs, LogitGradient, Wanted], None]
PASSES: tuple[tuple[Pass, tuple[Method, ...]], ...] = (
    (lrp, ("lrp", "relp")),
    (path, ("grad_x_input", "gradient", "ig", "ig_conductance")),
)
METHODS: dict[Method, Pass] = {method: one for one, methods in PASSES for method in methods}


def relevances(
    methods: Collection[Method], model: nn.Module, rows: RowIndex, input_ids: Tensor, gradient_of: LogitGradient,
    reduce: Reduce, attention_mask: Tensor | None = None, centre: Sequence[Tensor] | None = None,
    watch: OnLinear | None = None,
) -> None:  # fmt: skip
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

    methods: of one pass (`PASSES`); what several are given does not depend on the others.
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
    loaded: LoadedModel, method: Method, input_ids: Tensor, attention_mask: Tensor,
    target_fn: Callable[[Tensor], Tensor], *, batch_size: BatchSize = "auto",
) -> Tensor:  # fmt: skip
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
