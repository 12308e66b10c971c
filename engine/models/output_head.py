"""A language model in two halves: the body, which makes hidden states, and what its own forward makes of them.

With the halves apart, logits can be made for some positions at a time. The second half is the model's own forward over
a body that hands out given states, so that a soft cap, a scale or a bias of the logits is whatever the architecture
does."""

import inspect
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.records.errors import is_out_of_memory

_STATES = "last_hidden_state"
_SAME = {torch.float64: 1e-9, torch.float32: 1e-4}  # relative, since a product of other shapes sums in another order
_SAME_IN_HALF = 0.05


class Halves(NamedTuple):
    """states: hidden states [B, T, d] after the body. logits_of: logits [n, V] of some of them [n, d]."""

    states: Tensor
    logits_of: Callable[[Tensor], Tensor]


def has_two_halves(model: Any) -> bool:
    """Is there a body, then a plain Linear, and a way to ask for the last logits only? Needs no weights."""
    return (
        getattr(model, "base_model", model) is not model
        and isinstance(model.get_output_embeddings(), nn.Linear)
        and _keeps_some_logits(type(model).forward)
    )


def halves(model: Any, inputs: Mapping[str, Tensor], *, check: bool = True) -> Halves | None:
    """The body's states of a batch, from a pass of the whole model, and the second half for them. None where the second
    half's last logits are not, to within rounding, those of the pass. check=False: not compared, as tensors have no
    numbers."""
    body, here, said = model.base_model, threading.get_ident(), []

    def hear(_module: nn.Module, _args: Any, output: Any) -> None:
        if threading.get_ident() == here:  # another thread may pass the same model
            said.append(output)

    handle = body.register_forward_hook(hear)
    try:
        last = model(**inputs, use_cache=False, logits_to_keep=1).logits
    finally:
        handle.remove()
    if len(said) != 1 or not isinstance(said[0], dict) or said[0].get(_STATES) is None:
        return None
    output = said.pop()
    states = output[_STATES]

    def logits_of(some: Tensor) -> Tensor:
        return _second_half(model, type(output)(**{**output, _STATES: some[None]}), len(some))

    if check and not _same(logits_of, states[:, -1], last[:, -1]):
        return None
    return Halves(states, logits_of)


@cache
def _keeps_some_logits(forward: Callable[..., Any]) -> bool:
    return "logits_to_keep" in inspect.signature(forward).parameters


def _second_half(model: Any, output: Any, count: int) -> Tensor:
    """Logits [n, V]: the model's forward, its body answered for by `output`."""
    stand_in = _StandIn(model, output)
    ids = torch.zeros(1, count, dtype=torch.int64, device=output[_STATES].device)  # for who looks at their shape
    logits: Tensor = type(model).forward(stand_in, input_ids=ids, use_cache=False).logits
    if not stand_in._asked:
        raise AttributeError(f"{type(model).__name__} does not ask its {model.base_model_prefix}")
    return logits[0]


class _StandIn:
    """The model to its own forward, but for the body. Nothing of the model is changed, so threads do not meet."""

    def __init__(self, model: Any, output: Any) -> None:
        self._whole, self._output, self._asked = model, output, False

    def __getattr__(self, name: str) -> Any:  # of what is not set here
        return self._answer if name == self._whole.base_model_prefix else getattr(self._whole, name)

    def _answer(self, *_: Any, **__: Any) -> Any:
        self._asked = True
        return self._output


def _same(logits_of: Callable[[Tensor], Tensor], states: Tensor, expected: Tensor) -> bool:
    try:
        found = logits_of(states)
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        return False
    if found.shape != expected.shape:
        return False
    finite = expected.isfinite()
    if not torch.equal(finite, found.isfinite()):
        return False
    one, other = (torch.where(finite, values, 0).float() for values in (found, expected))
    limit = _SAME.get(expected.dtype, _SAME_IN_HALF)
    return bool((one - other).abs().max() <= limit * other.abs().max())
