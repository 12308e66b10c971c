"""The forward pass that wanda and mean_activation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.selectors.passes import embed, watching, wide

if TYPE_CHECKING:
    from engine.models import LoadedModel


@dataclass(frozen=True)
class ActivationStatistics:
    """Sizes of the inputs and outputs of every Linear over the calibration text.

    input_rms: per layer [d_in] float64, root mean square of X_j over all tokens of all windows.
    output_mean_abs: [N] float64, E abs(h_i) over the positions that predict a token (all but each window's last).
    """

    input_rms: Sequence[Tensor]
    output_mean_abs: Tensor


def window_statistics(loaded: LoadedModel, input_ids: Tensor) -> Tensor:
    """Sums over a batch of windows, in one flat vector so that batches add up.

    input_ids [B, T]; returns [sum of d_in + N] float64 on the CPU: sums of squares of the inputs of every
    layer, then sums of abs(h_i), both accumulated in float32 within the batch and in float64 across batches
    """
    model, rows = loaded.model, loaded.rows
    squares: list[Tensor] = [torch.empty(0)] * len(rows.layers)
    magnitudes: list[Tensor] = [torch.empty(0)] * len(rows.layers)
    positions = (input_ids.shape[0], input_ids.shape[1])

    def on_linear(layer: int, given: Tensor, output: Tensor) -> None:
        squares[layer] = wide(given).square().flatten(0, -2).sum(0)
        magnitudes[layer] = wide(output.view(*positions, -1)[:, :-1]).abs().sum((0, 1))

    with loaded.lock, torch.no_grad(), watching(model, rows, positions, on_linear):
        model(inputs_embeds=embed(model, input_ids), use_cache=False)
    return torch.cat([sums.cpu() for sums in (*squares, *magnitudes)]).double()


def split_statistics(loaded: LoadedModel, sums: Tensor, windows: int, tokens: int) -> ActivationStatistics:
    """`ActivationStatistics` from the summed `window_statistics` of `windows` windows of `tokens` tokens."""
    widths = [loaded.model.get_submodule(layer.name).in_features for layer in loaded.rows.layers]
    *squares, magnitudes = sums.split([*widths, loaded.rows.n_rows])
    rms = [(total / (windows * tokens)).sqrt() for total in squares]
    return ActivationStatistics(rms, magnitudes / (windows * (tokens - 1)))
