"""Whether relevance arrives at the input as AttnLRP's rules say that it must: tried on a model, not assumed.

Under the rules every part of a decoder hands on all relevance that it gets, but for two that take some away in known
amounts. With R(t) = sum of t * dF/dt over all entries of a tensor t, q, k, v and o what the attention function gets and
gives (norms, rotary positions included), b a Linear's bias and y its output, the head being the last Linear:

    R(embeddings) = R(logits) - sum over blocks of [R(o) - R(q) - R(k) - R(v)] - sum over biases of R(b at y)
    R(v) = R(o) / 2 and R(q) = R(k), in every block; R(y of the head) = R(logits)

The bracket is what the softmax keeps (AttnLRP's rule for it is a Taylor expansion with a bias). All of these hold up
to rounding where every norm, MLP and attention carries its rule and nothing else between embeddings and logits is
non-linear; a missing or doubled rule, a capped logit or a gate that no rule knows breaks them.

Bound: the geometric mean of the largest share seen under the rules of the families that lxt names and the smallest seen
with one kind of rule left out, rounded down. Seen on Llama, Qwen2, Qwen3 and Gemma-3 text with random weights (2, 8 and
32 blocks, 20 and 512 wide) and on the shipped model: at most 7.5e-8 in float32 and 2.7e-3 in bfloat16 (0.6 and 0.4 of
the type's epsilon, no growth with depth or width); without the rule of norms, MLPs or attention at least 0.21 in both
(2 and 8 blocks). A rule that one block of many lacks shows less: in float32 one MLP of eight is noticed, in half
precision it may pass. What keeps that out is that every block is read (`lrp_by_structure`); this is the second look."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from engine.models.forwards import wrapped_attention
from engine.models.rows_of_modules import decoder_blocks
from engine.records.errors import InputError

TOKENS = 12


@dataclass(frozen=True)
class Missing:
    """Relevance that the equations do not account for, each as a share of the largest sum of |t * dF/dt| in it.
    at_input: of the first equation. in_attention: of the blocks', in the worst one. at_logits: of the last; 0 without
    such a head. blocks: of how many the attention function was seen."""

    at_input: float
    in_attention: float
    at_logits: float
    blocks: int

    @property
    def most(self) -> float:
        """The largest of the shares, NaN where one is."""
        return _largest([self.at_input, self.in_attention, self.at_logits])


BOUND = 1e-4  # float32 and wider
HALF_PRECISION_BOUND = 2e-2


def allowed(dtype: torch.dtype) -> float:
    """The largest share of missing relevance that counts as rounding of this type."""
    return HALF_PRECISION_BOUND if dtype.itemsize == 2 else BOUND


def short_text(model: Any) -> Tensor:
    """Token ids [1, 12], spread evenly over the vocabulary: the equations hold for any text."""
    rows = model.get_input_embeddings().weight.shape[0]
    return torch.linspace(0, rows - 1, TOKENS).round().long()[None]


_tried: WeakSet[nn.Module] = WeakSet()


def tried(model: nn.Module) -> bool:
    """Whether there is nothing to try: done before, no weights (meta device, estimates), or no gradients to be had."""
    if model in _tried or torch.is_inference_mode_enabled():
        return True
    return any(one.is_meta or isinstance(one, FakeTensor) for one in model.parameters())


def logits_before(model: nn.Module) -> Tensor:
    """The logits that `try_out` compares to, taken without the rules: with a graph back to the embeddings, as the
    passes of scoring have them."""
    with torch.enable_grad():
        return _forward(model, short_text(model))[1].detach()


def try_out(model: nn.Module, modelings: tuple[ModuleType, ...], before: Tensor) -> None:
    """Tries the rules that hold now on a short text. Errors: InputError where the logits are not finite or not `before`
    to the bit, or more relevance is missing than `allowed`."""
    refused = f"lrp has no rules for {type(model).__name__}: under those of its blocks' structure"
    text = short_text(model)
    others = "the selectors other than lrp, relp and consensus2 still work"
    dtype = next(model.parameters()).dtype
    if not before.isfinite().all():
        raise InputError(
            f"lrp cannot be tried on {type(model).__name__}: its logits are no finite numbers on a short text "
            f"({str(dtype).removeprefix('torch.')}); run again with --dtype bfloat16 or float32, or look at its weights"
        )
    with torch.enable_grad():
        if not torch.equal(before, logits_before(model)):
            raise InputError(f"{refused} its logits are others, expected the same to the bit; {others}")
        missing = missing_relevance(model, text, modelings)
    bound, blocks = allowed(dtype), len(decoder_blocks(model))
    if not missing.most <= bound or missing.blocks != blocks:  # NaN is not below either
        half = dtype == torch.float16
        next_step = "run again with --dtype bfloat16 or float32" if half else f"something has no rule; {others}"
        raise InputError(
            f"{refused} {missing.at_input:.2g} of the relevance is missing at the input, "
            f"{missing.in_attention:.2g} in attention ({missing.blocks} of {blocks} blocks seen) and "
            f"{missing.at_logits:.2g} after the head, expected at most {bound:.2g} in "
            f"{str(dtype).removeprefix('torch.')}; {next_step}"
        )
    _tried.add(model)


def missing_relevance(model: Any, input_ids: Tensor, modelings: tuple[ModuleType, ...]) -> Missing:
    """What the equations leave open for F = sum over positions of the largest logit, under whatever rules hold.
    modelings: the modules whose attention functions the model calls. input_ids [B, T]."""
    calls: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    biased: list[tuple[Tensor, Tensor]] = []
    heads: list[Tensor] = []

    def record(function: Any, module: Any, query: Tensor, key: Tensor, value: Tensor, *more: Any, **named: Any) -> Any:
        attended = function(module, query, key, value, *more, **named)
        calls.append((query, key, value, attended[0]))
        return attended

    def note(module: Any, _: Any, output: Tensor) -> None:
        if output.requires_grad:
            biased.append((module.bias, output))

    with ExitStack() as undo:
        wrapped_attention(modelings, lambda function: partial(record, function), undo)
        for module in model.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                undo.callback(module.register_forward_hook(note).remove)
        head = getattr(model, "get_output_embeddings", lambda: None)()
        if isinstance(head, nn.Linear):
            undo.callback(head.register_forward_hook(lambda *given: heads.append(given[-1])).remove)
        start, logits = _forward(model, input_ids)
    gradient = torch.zeros_like(logits).scatter_(-1, logits.detach().argmax(-1, keepdim=True), 1.0)
    tensors = [start, *heads, *(output for _, output in biased), *(part for call in calls for part in call)]
    relevances = torch.autograd.grad(logits, tensors, gradient, allow_unused=True)
    gradients = iter([torch.zeros_like(t) if g is None else g for t, g in zip(tensors, relevances, strict=True)])
    at_input = _Sum.of(start, next(gradients))
    expected = _Sum.of(logits.detach(), gradient)
    at_logits = [_Sum.of(head, next(gradients)) for head in heads]
    biases = [_Sum.of(bias.expand_as(output), next(gradients)) for bias, output in biased]
    parts = [tuple(_Sum.of(part, next(gradients)) for part in call) for call in calls]
    open_in_attention = [0.0]
    conserved = 0.0
    for q, k, v, o in parts:
        conserved += o.total - q.total - k.total - v.total
        open_in_attention.append(abs(v.total - o.total / 2) / _size(v, o))
        open_in_attention.append(abs(q.total - k.total) / _size(q, k))
    accounted = expected.total - conserved - sum(bias.total for bias in biases)
    size = _size(at_input, expected, *biases, *(part for call in parts for part in call))
    after_head = [abs(head.total - expected.total) / _size(head, expected) for head in at_logits]
    at_start = abs(at_input.total - accounted) / size
    return Missing(at_start, _largest(open_in_attention), _largest([0.0, *after_head]), len(calls))


@dataclass(frozen=True)
class _Sum:
    total: float  # sum of t * dF/dt
    size: float  # sum of |t * dF/dt|

    @classmethod
    def of(cls, values: Tensor, gradient: Tensor) -> _Sum:
        products = values.detach().cpu().double() * gradient.cpu().double()  # few tokens; not every device has float64
        return cls(float(products.sum()), float(products.abs().sum()))


def _size(*sums: _Sum) -> float:
    return max(1e-300, _largest([one.size for one in sums]))


def _largest(values: list[float]) -> float:
    """The maximum; NaN where one is, which Python's `max` would lose."""
    return float(torch.tensor(values, dtype=torch.float64).max())


def _forward(model: Any, input_ids: Tensor) -> tuple[Tensor, Tensor]:
    embeddings = model.get_input_embeddings()
    with torch.no_grad():
        start = embeddings(input_ids.to(embeddings.weight.device))
    start = start.detach().requires_grad_()
    return start, model(inputs_embeds=start, use_cache=False).logits
