"""The forward pass that all selectors by activations share, and the one over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.selectors.passes import embed, watching, wide

if TYPE_CHECKING:
    from engine.data.prompts import EncodedPrompts
    from engine.models.loading import LoadedModel


@dataclass(frozen=True)
class ActivationStatistics:
    """Sizes of the inputs and outputs of every Linear over the calibration text.

    input_rms: per layer [d_in] float64, root mean square of X_j over all tokens of all windows.
    E is over the positions that predict a token (all but each window's last). All [N] float64:
    output_mean_abs: E abs(h_i). output_mean: E h_i. output_variance: E (h_i - E h_i)^2.
    """

    input_rms: Sequence[Tensor]
    output_mean_abs: Tensor
    output_mean: Tensor
    output_variance: Tensor


def window_statistics(loaded: LoadedModel, input_ids: Tensor) -> Tensor:
    """Sums over a batch of windows, in one flat vector so that batches add up.

    input_ids [B, T]; returns [sum of d_in + 3 N] float64 on the CPU: sums of squares of the inputs of every layer,
    then sums of abs(h_i), of h_i and of h_i^2. Accumulated in float32 within the batch and in float64 across batches;
    squares of h about the batch's mean, which is added in float64, so that a variance far below the mean survives.
    """
    model, rows = loaded.model, loaded.rows
    squares: list[Tensor] = [torch.empty(0)] * len(rows.layers)
    magnitudes: list[Tensor] = [torch.empty(0)] * len(rows.layers)
    totals: list[Tensor] = [torch.empty(0)] * len(rows.layers)
    spreads: list[Tensor] = [torch.empty(0)] * len(rows.layers)
    positions = (input_ids.shape[0], input_ids.shape[1])
    count = positions[0] * (positions[1] - 1)

    def on_linear(layer: int, given: Tensor, output: Tensor) -> None:
        squares[layer] = wide(given).square().flatten(0, -2).sum(0)
        h = wide(output.view(*positions, -1)[:, :-1])
        magnitudes[layer] = h.abs().sum((0, 1))
        totals[layer] = h.sum((0, 1))
        spreads[layer] = (h - totals[layer] / count).square().sum((0, 1))

    with loaded.lock, torch.no_grad(), watching(model, rows, positions, on_linear):
        model(inputs_embeds=embed(model, input_ids), use_cache=False)
    inputs, mean_abs, total, spread = (
        torch.cat([sums.cpu() for sums in layers]).double() for layers in (squares, magnitudes, totals, spreads)
    )
    return torch.cat([inputs, mean_abs, total, spread + total.square() / count])


def split_statistics(loaded: LoadedModel, sums: Tensor, windows: int, tokens: int) -> ActivationStatistics:
    """`ActivationStatistics` from the summed `window_statistics` of `windows` windows of `tokens` tokens."""
    widths = [loaded.model.get_submodule(layer.name).in_features for layer in loaded.rows.layers]
    *inputs, magnitudes, totals, squares = sums.split([*widths, *[loaded.rows.n_rows] * 3])
    rms = [(total / (windows * tokens)).sqrt() for total in inputs]
    count = windows * (tokens - 1)
    mean = totals / count
    variance = (squares / count - mean.square()).clamp(min=0)
    return ActivationStatistics(rms, magnitudes / count, mean, variance)


@torch.no_grad()
def prompt_activations(loaded: LoadedModel, batch: EncodedPrompts) -> Tensor:
    """abs(h_i) summed over the real tokens of a batch of prompts, float64 [N] on the CPU."""
    layers = loaded.rows.layers
    sums = torch.zeros(loaded.rows.n_rows, dtype=torch.float64)
    real = batch.attention_mask.bool()

    def add(layer: int, _: Tensor, output: Tensor) -> None:
        h = wide(output).view(*real.shape, -1)[real.to(output.device)]  # [real tokens, rows]
        start = layers[layer].start
        sums[start : start + layers[layer].rows] = h.abs().sum(0).cpu().double()

    with loaded.lock, watching(loaded.model, loaded.rows, (real.shape[0], real.shape[1]), add):
        loaded.model(**batch._asdict(), use_cache=False, logits_to_keep=1)
    return sums
