"""The forward pass that wanda and mean_activation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.errors import InputError
from engine.selectors.passes import BatchSize, embed, first_batch_size, in_batches, watching, wide

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
        squares[layer] = wide(given).square().flatten(0, -2).sum(0).cpu().double()
        magnitudes[layer] = wide(output.view(*positions, -1)[:, :-1]).abs().sum((0, 1)).cpu().double()

    with loaded.lock, torch.no_grad(), watching(model, rows, positions, on_linear):
        model(inputs_embeds=embed(model, input_ids), use_cache=False)
    return torch.cat([*squares, *magnitudes])


def split_statistics(loaded: LoadedModel, sums: Tensor, windows: int, tokens: int) -> ActivationStatistics:
    """`ActivationStatistics` from the summed `window_statistics` of `windows` windows of `tokens` tokens."""
    widths = [loaded.model.get_submodule(layer.name).in_features for layer in loaded.rows.layers]
    *squares, magnitudes = sums.split([*widths, loaded.rows.n_rows])
    rms = [(total / (windows * tokens)).sqrt() for total in squares]
    return ActivationStatistics(rms, magnitudes / (windows * (tokens - 1)))


def per_prompt_activation(
    loaded: LoadedModel, input_ids: Tensor, attention_mask: Tensor, *, batch_size: BatchSize = "auto"
) -> Tensor:
    """Mean of abs(h_i) over the real positions of each prompt.

    input_ids, attention_mask [B, T], padded on either side; returns [B, N] float32 on the CPU
    """
    model, rows = loaded.model, loaded.rows
    if attention_mask.shape != input_ids.shape or not attention_mask.any(-1).all():
        raise InputError("every prompt needs at least one real token, and a mask of the shape of its tokens")

    def work(part: slice) -> Tensor:
        means: list[Tensor] = [torch.empty(0)] * len(rows.layers)
        ids, mask = input_ids[part], attention_mask[part]
        positions = (ids.shape[0], ids.shape[1])

        def on_linear(layer: int, _: Tensor, output: Tensor) -> None:
            real = mask.to(output.device).bool()[..., None]
            sums = torch.where(real, wide(output.view(*positions, -1)).abs(), 0.0).sum(1)
            means[layer] = (sums / real.sum(1)).float().cpu()

        embeddings = embed(model, ids)
        seen = mask.to(embeddings.device)
        places = (seen.cumsum(-1) - 1).clamp(min=0)
        with loaded.lock, torch.no_grad(), watching(model, rows, positions, on_linear):
            model(inputs_embeds=embeddings, attention_mask=seen, position_ids=places, use_cache=False)
        return torch.cat(means, dim=1)

    size = (
        first_batch_size(model, rows, input_ids.shape[1]) if batch_size in ("auto", None) else int(batch_size)
    )
    return torch.cat([values for _, values in in_batches(work, len(input_ids), size)])
