"""Sums over the predicted tokens of a batch, for all selectors that one pass can serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn

from engine.models.experts import routed
from engine.records.errors import unknown
from engine.selectors.attribution import Method, relevances
from engine.selectors.base import Objective
from engine.selectors.gradients import METHODS
from engine.selectors.passes import objective_gradient
from engine.selectors.seen import Seen

if TYPE_CHECKING:
    from engine.models.loading import LoadedModel

Statistic = Literal["abs", "signed", "square"]
Asked = tuple[Method, Statistic]  # a method and what is summed of its relevance
# Relevance [B, T, rows] -> [rows], accumulated in its own dtype within a batch.
SUMS: dict[Statistic, Callable[[Tensor], Tensor]] = {
    "abs": lambda values: values.abs().sum((0, 1)),
    "signed": lambda values: values.sum((0, 1)),
    "square": lambda values: values.square().sum((0, 1)),
}


def same_pass(first: Method, second: Method) -> bool:
    """Do both come from the same forward and backward passes?"""
    return METHODS[first] is METHODS[second]


def checked_asks(asks: Iterable[tuple[str, str]]) -> tuple[Asked, ...]:
    """The same. Errors: InputError for a method or a statistic that there is not."""
    for method, statistic in asks:
        if method not in METHODS:
            raise unknown("attribution method", method, METHODS)
        if statistic not in SUMS:
            raise unknown("statistic of relevance", statistic, SUMS)
    return cast("tuple[Asked, ...]", tuple(asks))


def relevance_sums(
    loaded: LoadedModel,
    input_ids: Tensor,
    asked: Sequence[Asked],
    objective: Objective,
    centre: Sequence[Tensor] | None = None,
) -> Tensor:
    """Sums over a batch of windows, in one flat vector so that batches add up.

    input_ids [B, T]; asked: of one pass; centre: for relp, the mean output of every layer.
    A window of T tokens counts T - 1 positions: the last one predicts nothing, and its relevance is zero. A routed
    expert counts those that it sees.

    returns [len(asked) * N + layers] float64 on the CPU, summed in float32 within the batch: the sums, then the
    predicting tokens that each layer sees
    """
    layers = loaded.rows.layers
    sums: list[list[Tensor]] = [[torch.zeros(layer.rows) for layer in layers] for _ in asked]

    def reduce(method: Method, layer: int, values: Tensor) -> None:
        for place, (of, statistic) in enumerate(asked):
            if of == method:
                sums[place][layer] = SUMS[statistic](values[:, :-1])

    def gradient_of(logits: Tensor) -> Tensor:
        return objective_gradient(logits, input_ids, objective)

    methods = dict.fromkeys(method for method, _ in asked)
    with loaded.lock, counting(loaded, input_ids) as counts:
        relevances(methods, loaded.model, loaded.rows, input_ids, gradient_of, reduce, centre=centre)
    return torch.cat([*(values.cpu().double() for found in sums for values in found), counts])


@contextmanager
def counting(loaded: LoadedModel, input_ids: Tensor) -> Iterator[Tensor]:
    """Inside: a pass over the windows; what is given then holds the predicting tokens that each layer sees.

    [layers] float64. Of a Linear that is no routed expert's all of them, also where it runs several times.
    """
    windows, tokens = input_ids.shape
    every = windows * (tokens - 1)
    modules = [loaded.model.get_submodule(layer.name) for layer in loaded.rows.layers]
    counts = torch.tensor([0 if routed(module) else every for module in modules], dtype=torch.float64)
    handles = []

    def count(layer: int) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def hook(_: nn.Module, given: tuple[Any, ...], _output: Tensor) -> None:
            counts[layer] = len(Seen((windows, tokens), given[1]).predicting(given[1]))

        return hook

    try:
        for layer, module in enumerate(modules):
            if routed(module):
                handles.append(module.register_forward_hook(count(layer)))
        yield counts
    finally:
        for handle in handles:
            handle.remove()
