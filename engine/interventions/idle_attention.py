"""Leave out what an attention computes for nothing under a mask, while it is measured.

A head says softmax(q k^T / sqrt(d)) v, and o_proj reads the heads. Where o_proj has no live row, nobody reads them.
Where v_proj has none, they are zero whatever the softmax is. Where each product of a query's and a key's dimension has
a factor that is zero, all scores are equal, and the head says the mean of the values so far.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.interventions.dead_rows import alive_rows, with_inputs, zeros
from engine.interventions.uninterrupted import Undone
from engine.models.forwards import set_forward
from engine.models.heads import Attention, attentions
from engine.models.loading import LoadedModel, input_device

NAME = "selector_audit_idle"  # of this attention among those that transformers chooses from
_FUSED = "sdpa"  # in whose place it stands: without a mask that one is causal, and nothing is added to its scores
LEAST_IDLE = 3 / 8  # of the heads; for fewer, copying the rest took as long: 1.28 for 1 of 6, .99 for 3 of 8
_PARTS = "qkvo"
_Alive = Mapping[str, Tensor]  # of each part [rows] of bool
_proven: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


def spares(loaded: LoadedModel) -> bool:
    """Has the model attentions of which something can be left out? By its structure and the kind of device alone."""
    return bool(_spared(loaded))


class Spared(NamedTuple):
    """What is left to the Linears of attentions: which compute nothing, and which inputs of others are not always 0."""

    unread: set[nn.Module]
    live_inputs: dict[nn.Module, Tensor]  # of an o_proj: [in] of bool


def spare(loaded: LoadedModel, steps: Undone) -> Spared:
    """The model's attentions do without what zero rows of their Linears make idle, until `steps` are taken back.

    For evaluation in one thread, under the model's lock. That what is left out changes nothing is proven once for a
    model, by passes of a few tokens with random weights in its attentions. Without that proof, nothing is left out.
    """
    found = []
    for attention in _spared(loaded):
        alive = {part: alive_rows(_linear(loaded.model, attention, part)).cpu() for part in _PARTS}
        plan = _plan(loaded, attention, alive)
        if plan is not None or not alive["v"].all():
            found.append((attention, plan, alive["v"]))
    spared = Spared(set(), {})
    if found and _is_proven(loaded):
        for attention, plan, values in found:
            spared.live_inputs[_linear(loaded.model, attention, "o")] = _heard(attention, values)
            if plan is not None:
                _follow(loaded.model, attention, plan, steps)
                spared.unread.update(_linear(loaded.model, attention, part) for part in plan.unread)
    return spared


def _heard(attention: Attention, values: Tensor) -> Tensor:
    """Which inputs of o_proj are not always zero, [H d] of bool, where these rows of v_proj are alive."""
    return values.view(-1, attention.size).repeat_interleave(attention.group, 0).flatten()


class _Plan:
    """What is idle in an attention. In the place of the module's configuration, which it is in all but the name of the
    attention: transformers reads that there.

    silent: whatever the heads say counts for nothing. unread: parts whose outputs count for nothing. no_values: [H] of
    bool, heads whose values are zero. no_scores: are all scores equal? alive: [H, d] of bool, rows of queries and of
    keys, where those of some heads may turn out to be equal, else None. group: query heads to a head of keys.
    """

    own: Any = None
    on_no_scores: Callable[[], object] | None = None  # to be called when all heads are seen to have none

    def __init__(
        self, *, silent: bool, unread: str, no_values: Tensor, no_scores: bool, alive: tuple[Tensor, Tensor] | None,
        group: int,
    ) -> None:  # fmt: skip
        self.silent, self.unread, self.no_scores, self.group = silent, unread, no_scores, group
        self._no_values, self._alive = no_values, alive
        self._idle: Tensor | None = None

    @property
    def _attn_implementation(self) -> str:
        return NAME

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def idle_heads(self, query: Tensor, key: Tensor) -> Tensor:
        """Which heads say the mean of their values, or nothing: [H]. query [B, H, T, d], key [B, H / group, T, d]

        A row that is zero is a dimension that is zero, unless positions rotate another into it. So the first pass shows
        which are, if every live row's is seen not to be.
        """
        if self._idle is not None:
            return self._idle
        idle = self._no_values | self.no_scores
        if self._alive is not None and not self.no_scores:
            seen = [states.abs().amax((0, 2)) != 0 for states in (query, key)]  # [H, d]; NaN is not zero
            if not all(bool(there[rows].all()) for there, rows in zip(seen, self._alive, strict=True)):
                return idle  # tokens that say nothing
            meet = (seen[0] & seen[1].repeat_interleave(self.group, 0)).any(1)
            idle = idle | ~meet
            if not meet.any() and self.on_no_scores is not None:
                self.on_no_scores()
        self._idle = idle
        return idle


def _spared(loaded: LoadedModel) -> list[Attention]:
    """Attentions by transformers' fused function, of four Linears and nothing else that adds a constant. None where
    there are others too, which may read keys and values of these (Gemma 3n's do), and none on other devices.
    """
    known = attentions(loaded.model, loaded.rows)
    found: list[Attention] = []
    if known.without or loaded.device.partition(":")[0] not in ("cpu", "cuda"):
        return found
    for attention in known.attentions:
        module = _module(loaded.model, attention)
        linears = [_linear(loaded.model, attention, part) for part in _PARTS]
        others = [child for child in module.children() if not any(child is linear for linear in linears)]
        biased = any(name.endswith("bias") for child in others for name, _ in child.named_parameters())
        fused = getattr(getattr(module, "config", None), "_attn_implementation", None) == _FUSED
        if fused and not biased and all(type(linear) is nn.Linear for linear in linears):
            found.append(attention)
    return found


def _module(model: nn.Module, attention: Attention) -> nn.Module:
    return model.get_submodule(attention.q.name.rpartition(".")[0])


def _linear(model: nn.Module, attention: Attention, part: str) -> nn.Linear:
    layer = dict(zip(_PARTS, (attention.q, attention.k, attention.v, attention.output), strict=True))[part]
    linear = model.get_submodule(layer.name)
    assert isinstance(linear, nn.Linear)
    return linear


def _plan(loaded: LoadedModel, attention: Attention, alive: _Alive) -> _Plan | None:
    """What is idle where these rows are alive, None for nothing."""
    size, group = attention.size, attention.group
    no_values = ~alive["v"].view(-1, size).any(1).repeat_interleave(group)
    unheard, silent = not alive["o"].any(), bool(no_values.all())
    no_scores = not alive["q"].any() or not alive["k"].any()
    rows = alive["q"].view(-1, size), alive["k"].view(-1, size)
    zeros = (~rows[0]).sum(1) + (~rows[1]).sum(1).repeat_interleave(group)
    # Queries and keys are not looked at on a card, which would be waited for.
    may_meet_in_zeros = loaded.device == "cpu" and bool((zeros >= size).any())
    if unheard or silent:
        constant = unheard or _linear(loaded.model, attention, "o").bias is None
        unread = "qkvo" if constant else "qkv"
    elif no_scores:
        unread = "qk"
    elif may_meet_in_zeros or no_values.any():
        unread = ""
    else:
        return None
    return _Plan(
        silent=unheard or silent, unread=unread, no_values=no_values, no_scores=no_scores,
        alive=rows if may_meet_in_zeros else None, group=group,
    )  # fmt: skip


def _follow(model: nn.Module, attention: Attention, plan: _Plan, steps: Undone) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    module: Any = _module(model, attention)

    def unread(parts: str) -> None:
        for part in parts:
            set_forward(_linear(model, attention, part), zeros, steps)

    plan.own, plan.on_no_scores = module.config, partial(unread, "qk")
    steps.append(partial(setattr, module, "config", plan.own))
    module.config = plan
    unread(plan.unread)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **more: Any
) -> tuple[Tensor, Tensor | None]:
    """transformers' fused attention of the heads that are not idle, and what the others say without it.

    query [B, H, T, d], key and value [B, H / group, T, d]; returns [B, T, H, d], None
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    plan: _Plan = module.config
    if plan.silent:
        return query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3]), None
    idle = plan.idle_heads(query, key) if _is_causal(module, query, key, attention_mask, more) else None
    if idle is None or idle.float().mean() < LEAST_IDLE:
        found: tuple[Tensor, None] = ALL_ATTENTION_FUNCTIONS[_FUSED](module, query, key, value, attention_mask, **more)
        return found
    means = _means_so_far(value).repeat_interleave(plan.group, 1)
    if not idle.all():
        heads = (~idle).nonzero().flatten()
        served = (heads // plan.group).to(query.device)
        heads = heads.to(query.device)
        means[:, heads] = functional.scaled_dot_product_attention(
            query[:, heads], key[:, served], value[:, served], is_causal=True, scale=more.get("scaling")
        )
    return means.transpose(1, 2).contiguous(), None


def _is_causal(module: Any, query: Tensor, key: Tensor, mask: Tensor | None, more: Mapping[str, Any]) -> bool:
    """Does each position see itself and all before it, by products alone?"""
    added = mask is not None or more.get("position_bias") is not None or more.get("softcap") is not None
    causal = more.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    return not added and bool(causal) and query.shape[2] == key.shape[2] > 1 and not more.get("dropout")


def _means_so_far(value: Tensor) -> Tensor:
    """Mean over positions 0..t for each t. value [B, H, T, d]"""
    counts = torch.arange(1, value.shape[2] + 1, device=value.device)[:, None]
    return (value.cumsum(2, dtype=torch.float32) / counts).to(value.dtype)


def _is_proven(loaded: LoadedModel) -> bool:
    known = _proven.get(loaded.model)
    if known is None:
        known = _proven[loaded.model] = _changes_nothing(loaded)
    return known


@torch.inference_mode()
def _changes_nothing(loaded: LoadedModel) -> bool:
    """Passes of six tokens in which attentions have random weights and one kind of idleness each, in turn.

    Rounding was at most 7e-7 of the largest logit in float32 and a forged mean .2 and more; the limit is 1.2e-4 there.
    """
    model, found = loaded.model, _spared(loaded)
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    ids = (torch.arange(6).view(2, 3) % vocabulary).to(input_device(model))
    kinds = ("o", "v", "q", "k", "half of v", "half of q", "some of v")
    for turn in range(0, len(kinds), len(found)):
        of_each = [(attention, kinds[(turn + place) % len(kinds)]) for place, attention in enumerate(found)]
        dense, spared = (_logits(loaded, ids, of_each, leave_out) for leave_out in (False, True))
        limit = float(dense.abs().max()) * torch.finfo(dense.dtype).eps ** 0.5 / 3
        if not torch.allclose(dense, spared, rtol=0, atol=limit):
            return False
    return True


def _logits(loaded: LoadedModel, ids: Tensor, of_each: Sequence[tuple[Attention, str]], leave_out: bool) -> Tensor:
    """Of a pass in which each of these attentions has random weights with the rows of its kind zero."""
    generator = torch.Generator().manual_seed(0)
    with Undone() as steps, steps:
        for attention, kind in of_each:
            alive = {}
            for part in _PARTS:
                linear = _linear(loaded.model, attention, part)  # at last o_proj
                alive[part] = torch.ones(linear.out_features, dtype=torch.bool)
                if kind[-1] == part:
                    heads = linear.out_features // attention.size
                    gone = slice(math.ceil(heads / 2) * attention.size if "half" in kind else None)
                    alive[part][slice(None, None, 2) if "some" in kind else gone] = False
                weight = torch.randn(linear.weight.shape, generator=generator) * alive[part][:, None]
                weight /= linear.in_features**0.5
                set_forward(linear, partial(_times, weight.to(linear.weight)), steps)
            plan = _plan(loaded, attention, alive)
            if leave_out and plan is not None:
                _follow(loaded.model, attention, plan, steps)
            if leave_out and "some" in kind:
                live = _heard(attention, alive["v"]).to(linear.weight.device)
                set_forward(linear, with_inputs(weight.to(linear.weight), live), steps)
        logits: Tensor = loaded.model(input_ids=ids, use_cache=False).logits
        return logits


def _times(weight: Tensor, _: nn.Linear, input: Tensor) -> Tensor:
    return functional.linear(input, weight)
