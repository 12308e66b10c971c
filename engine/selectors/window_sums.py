"""Sums over the tokens of a batch of windows: of what Linears read and give, and of relevance, for all selectors that
one pass can serve; and of what Linears give on prompts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from engine.data.prompts import EncodedPrompts
from engine.models.experts import routed
from engine.models.forwards import last_logits_only
from engine.models.loading import LoadedModel
from engine.records.errors import unknown
from engine.selectors.base import Objective
from engine.selectors.gradients import METHODS, Method, relevances
from engine.selectors.passes import Seen, counted, embed, objective_gradient, on_cpu, rows_summed, watching, wide

Statistic = Literal["abs", "signed", "square", "first abs", "first square"]
Asked = tuple[Method, Statistic]  # a method and what is summed of its relevance
# Relevance [B, T, rows] -> [rows], accumulated in its own dtype within a batch; `first`: of the first position alone.
SUMS: dict[Statistic, Callable[[Tensor], Tensor]] = {
    "abs": lambda values: values.abs().sum((0, 1)),
    "signed": lambda values: values.sum((0, 1)),
    "square": lambda values: values.square().sum((0, 1)),
    "first abs": lambda values: SUMS["abs"](values[:, :1]),
    "first square": lambda values: SUMS["square"](values[:, :1]),
}


@dataclass(frozen=True)
class ActivationStatistics:
    """Sizes of the inputs and outputs of every Linear over the calibration text.

    input_rms: per layer [d_in] float64, root mean square of X_j over all tokens of all windows.
    E is over the positions that predict a token (all but each window's last). Both without the first `skip_first`
    positions of each window, where a run leaves some out. All [N] float64:
    output_mean_abs: E abs(h_i). output_mean: E h_i. output_variance: E (h_i - E h_i)^2.

    A routed expert's are over the tokens that it sees, so that one that few tokens choose is not small for that; where
    it sees none, all are 0 (**choice**: without it the text says the same)."""

    input_rms: Sequence[Tensor]
    output_mean_abs: Tensor
    output_mean: Tensor
    output_variance: Tensor


def window_statistics(
    loaded: LoadedModel, input_ids: Tensor, skip_first: int = 0, ends: Sequence[int] | None = None
) -> Tensor:
    """Sums over a batch of windows, in one flat vector so that batches add up. input_ids [B, T]; skip_first: positions
    at the start of each window that are not counted; ends: the sums over the first so many windows of the batch, a
    vector for each, None for all B.

    Accumulated in float32 within the batch and in float64 across batches; squares of h about the batch's mean. returns
    [ends, sum of d_in + 3 N + 2 layers] float64 on the CPU: sums of squares of the inputs of every layer, then sums of
    abs(h_i), of h_i and of h_i^2, then tokens and predicting tokens that each layer sees"""
    model, rows = loaded.model, loaded.rows
    sums = WindowSums(loaded, ends or (len(input_ids),), skip_first)
    positions = (input_ids.shape[0], input_ids.shape[1])
    with loaded.lock, torch.no_grad(), watching(model, rows, positions, sums.add):
        model(inputs_embeds=embed(model, input_ids), use_cache=False, **last_logits_only(model))
    return sums.flat()


class WindowSums:
    """What `window_statistics` returns, from whatever pass takes the batch through the model as it is."""

    def __init__(self, loaded: LoadedModel, ends: Sequence[int], skip_first: int) -> None:
        self._ends, self._skip_first, layers = ends, skip_first, loaded.rows.layers
        self._sizes = [layer.rows for layer in layers]
        sizes = [(width, *[rows] * 3) for width, rows in zip(_widths(loaded), self._sizes, strict=True)]
        # For each end and layer sums of squares of the inputs, of abs(h), of h, and of squares of h about its mean.
        self._sums = [[tuple(map(torch.zeros, of_layer)) for of_layer in sizes] for _ in ends]
        self._counts = torch.zeros(len(ends), 2, len(layers), dtype=torch.float64)  # tokens, predicting tokens
        self._given: tuple[Tensor, int] | None = None  # what a Linear read last, and its version

    def add(self, layer: int, given: Tensor, output: Tensor, seen: Seen) -> None:
        """What a Linear reads at all tokens, and gives at those that predict."""
        if self._given is None or given is not self._given[0] or given._version != self._given[1]:
            # Several Linears read the same: q, k and v, gate and up.
            self._given = given, given._version
            self._of_given = [self._of_inputs(given, seen, end) for end in self._ends]
        for place, end in enumerate(self._ends):
            these, (outputs,) = seen.first(end, output)
            h = wide(these.predicting(outputs, self._skip_first))
            count, total = h.shape[:-1].numel(), rows_summed(h)
            spread = rows_summed((h - total / max(count, 1)).square())
            squares, tokens = self._of_given[place]
            self._sums[place][layer] = (squares, rows_summed(h.abs()), total, spread)
            self._counts[place, :, layer] = torch.tensor([tokens, count])

    def _of_inputs(self, given: Tensor, seen: Seen, end: int) -> tuple[Tensor, int]:
        """Sums of squares over tokens, and how many these are."""
        these, (inputs,) = seen.first(end, given)
        x = wide(these.counting(inputs, self._skip_first))
        return x.square().flatten(0, -2).sum(0), x.shape[:-1].numel()

    def flat(self) -> Tensor:
        """[ends, sum of d_in + 3 N + 2 layers]"""
        flattened = []
        for sums, counts in zip(self._sums, self._counts, strict=True):
            inputs, mean_abs, total, spread = map(on_cpu, zip(*sums, strict=True))
            squared_means = total.square() / counted(counts[1], self._sizes)
            flattened.append(torch.cat([inputs, mean_abs, total, spread + squared_means, counts.flatten()]))
        return torch.stack(flattened)


def split_statistics(loaded: LoadedModel, sums: Tensor) -> ActivationStatistics:
    """`ActivationStatistics` from the summed `window_statistics` of some windows."""
    layers = loaded.rows.layers
    sizes = [*_widths(loaded), *[loaded.rows.n_rows] * 3, *[len(layers)] * 2]
    *inputs, magnitudes, totals, squares, tokens, predicting = sums.split(sizes)
    rms = [(total / count).sqrt() for total, count in zip(inputs, tokens.clamp(min=1), strict=True)]
    count = counted(predicting, [layer.rows for layer in layers])
    mean = totals / count
    variance = (squares / count - mean.square()).clamp(min=0)
    return ActivationStatistics(rms, magnitudes / count, mean, variance)


def _widths(loaded: LoadedModel) -> list[int]:
    return [loaded.model.get_submodule(layer.name).in_features for layer in loaded.rows.layers]


@torch.no_grad()
def prompt_activations(loaded: LoadedModel, batch: EncodedPrompts) -> Tensor:
    """abs(h_i) summed over the real tokens of a batch of prompts, float64 [N] on the CPU.
    A routed expert adds nothing at tokens that it does not see."""
    layers = loaded.rows.layers
    sums = torch.zeros(loaded.rows.n_rows, dtype=torch.float64)
    real = batch.attention_mask.bool()

    def add(layer: int, _: Tensor, output: Tensor, seen: Seen) -> None:
        h = seen.at(wide(output), real)  # [real tokens that it sees, rows]
        start = layers[layer].start
        sums[start : start + layers[layer].rows] = h.abs().sum(0).cpu().double()

    with loaded.lock, watching(loaded.model, loaded.rows, (real.shape[0], real.shape[1]), add):
        loaded.model(**batch._asdict(), use_cache=False, logits_to_keep=1)
    return sums


def needs_plain(method: str) -> bool:
    """Does it come from the pass of plain gradients, which takes windows through the model as it is?"""
    return METHODS.get(cast(Method, method)) is METHODS["grad_x_input"]


def checked_asks(asks: Iterable[tuple[str, str]]) -> tuple[Asked, ...]:
    """The same. Errors: InputError for a method or a statistic that there is not."""
    pairs = tuple(asks)
    for method, statistic in pairs:
        if method not in METHODS:
            raise unknown("attribution method", method, METHODS)
        if statistic not in SUMS:
            raise unknown("statistic of relevance", statistic, SUMS)
    return cast("tuple[Asked, ...]", pairs)


def relevance_sums(
    loaded: LoadedModel, input_ids: Tensor, asked: Sequence[Asked], objective: Objective,
    centre: Sequence[Tensor] | None = None, skip_first: int = 0, ends: Sequence[int] | None = None,
    statistics: bool = False,
) -> Tensor:  # fmt: skip
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
            torch.cat([on_cpu([values for layers in found for values in layers]), count])
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

    def count(layer: int, _: nn.Module, given: tuple[Any, ...], _output: Tensor) -> None:
        seen = Seen((windows, tokens), given[1])
        for place, end in enumerate(ends):
            these, (numbers,) = seen.first(end, given[1])
            counts[place, layer] = len(these.predicting(numbers, skip_first))

    with ExitStack() as hooks:
        for layer, module in enumerate(modules):
            if routed(module):
                hooks.callback(module.register_forward_hook(partial(count, layer)).remove)
        yield counts
