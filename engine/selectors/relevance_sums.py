"""Sums over the predicted tokens of a batch, for all selectors that one pass can serve."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from engine.models.experts import routed
from engine.models.loading import LoadedModel
from engine.records.errors import unknown
from engine.selectors.activations import WindowSums
from engine.selectors.base import Objective
from engine.selectors.gradients import METHODS, Method, relevances
from engine.selectors.passes import Seen, objective_gradient

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


def needs_plain(method: str) -> bool:
    """Does it come from the pass of plain gradients, which takes windows through the model as it is?"""
    return METHODS.get(cast(Method, method)) is METHODS["grad_x_input"]


def checked_asks(asks: Iterable[tuple[str, str]]) -> tuple[Asked, ...]:
    """The same. Errors: InputError for a method or a statistic that there is not."""
    found = tuple(asks)
    for method, statistic in found:
        if method not in METHODS:
            raise unknown("attribution method", method, METHODS)
        if statistic not in SUMS:
            raise unknown("statistic of relevance", statistic, SUMS)
    return cast("tuple[Asked, ...]", found)


def relevance_sums(
    loaded: LoadedModel,
    input_ids: Tensor,
    asked: Sequence[Asked],
    objective: Objective,
    centre: Sequence[Tensor] | None = None,
    skip_first: int = 0,
    ends: Sequence[int] | None = None,
    statistics: bool = False,
) -> Tensor:
    """Sums over a batch of windows, in one flat vector so that batches add up.

    input_ids [B, T]; asked: of one pass; centre: for relp, the mean output of every layer; ends: the sums over the
    first so many windows of the batch, a vector for each, None for all B.
    A window of T tokens counts T - 1 positions: the last one predicts nothing, and its relevance is zero. The first
    `skip_first` are not counted either, though what they predict is part of F (of a BOS before the window that changes
    no score: no later position takes part in it). A routed expert counts those that it sees.

    statistics: of ig's pass and plain gradients' the activations as well, at the end of the path, where the batch goes
    through as it is.

    returns [ends, len(asked) * N + layers] float64 on the CPU, summed in float32 within the batch: the sums, then the
    predicting tokens that each layer sees, then what `window_statistics` returns if that is wanted"""
    layers = loaded.rows.layers
    ends = ends or (len(input_ids),)
    sums = [[[torch.zeros(layer.rows) for layer in layers] for _ in asked] for _ in ends]

    def reduce(method: Method, layer: int, values: Tensor) -> None:
        for end, found in zip(ends, sums, strict=True):
            for place, (of, statistic) in enumerate(asked):
                if of == method:
                    found[place][layer] = SUMS[statistic](values[:end, skip_first:-1])

    def gradient_of(logits: Tensor) -> Tensor:
        return objective_gradient(logits, input_ids, objective)

    methods = dict.fromkeys(method for method, _ in asked)
    beside = WindowSums(loaded, ends, skip_first) if statistics else None
    watch = beside.add if beside else None
    with loaded.lock, counting(loaded, input_ids, skip_first, ends) as counts:
        relevances(methods, loaded.model, loaded.rows, input_ids, gradient_of, reduce, centre=centre, watch=watch)
    found = torch.stack(
        [
            torch.cat([*(values.cpu().double() for layers in found for values in layers), count])
            for found, count in zip(sums, counts, strict=True)
        ]
    )
    return torch.cat([found, beside.flat()], dim=1) if beside else found


@contextmanager
def counting(
    loaded: LoadedModel, input_ids: Tensor, skip_first: int = 0, ends: Sequence[int] | None = None
) -> Iterator[Tensor]:
    """Inside: a pass over the windows; what is given then holds the predicting tokens that each layer sees.

    In the first so many windows of the batch for each of `ends`, in all of them for None; without the first
    `skip_first` of each window. [ends, layers] float64. Of a Linear that is no routed expert's all of them,
    also where it runs several times."""
    windows, tokens = input_ids.shape
    ends = ends or (windows,)
    modules = [loaded.model.get_submodule(layer.name) for layer in loaded.rows.layers]
    predicting = tokens - 1 - skip_first
    counts = torch.tensor(
        [[0 if routed(module) else end * predicting for module in modules] for end in ends], dtype=torch.float64
    )

    def count(layer: int) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def hook(_: nn.Module, given: tuple[Any, ...], _output: Tensor) -> None:
            seen = Seen((windows, tokens), given[1])
            for place, end in enumerate(ends):
                these, (numbers,) = seen.first(end, given[1])
                counts[place, layer] = len(these.predicting(numbers, skip_first))

        return hook

    with ExitStack() as hooks:
        for layer, module in enumerate(modules):
            if routed(module):
                hooks.callback(module.register_forward_hook(count(layer)).remove)
        yield counts
