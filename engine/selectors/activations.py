"""The forward pass that all selectors by activations share, and the one over prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.data.prompts import EncodedPrompts
from engine.models.loading import LoadedModel
from engine.selectors.passes import Seen, counted, embed, rows_summed, watching, wide


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
    found = WindowSums(loaded, ends or (len(input_ids),), skip_first)
    positions = (input_ids.shape[0], input_ids.shape[1])
    with loaded.lock, torch.no_grad(), watching(model, rows, positions, found.add):
        model(inputs_embeds=embed(model, input_ids), use_cache=False)
    return found.flat()


class WindowSums:
    """What `window_statistics` returns, from whatever pass takes the batch through the model as it is."""

    def __init__(self, loaded: LoadedModel, ends: Sequence[int], skip_first: int) -> None:
        self._ends, self._skip_first = ends, skip_first
        self._sizes = [layer.rows for layer in loaded.rows.layers]
        self._sums = [_BatchSums(loaded) for _ in ends]

    def add(self, layer: int, given: Tensor, output: Tensor, seen: Seen) -> None:
        """What a Linear reads and gives."""
        skip_first = self._skip_first
        for end, sums in zip(self._ends, self._sums, strict=True):
            these, (inputs, outputs) = seen.first(end, given, output)
            sums.add(layer, wide(these.counting(inputs, skip_first)), wide(these.predicting(outputs, skip_first)))

    def flat(self) -> Tensor:
        """[ends, sum of d_in + 3 N + 2 layers]"""
        return torch.stack([sums.flat(self._sizes) for sums in self._sums])


class _BatchSums:
    """What `window_statistics` sums over some windows of a batch, layer by layer."""

    def __init__(self, loaded: LoadedModel) -> None:
        layers = loaded.rows.layers
        self.squares = [torch.zeros(width) for width in _widths(loaded)]
        self.magnitudes, self.totals, self.spreads = ([torch.zeros(layer.rows) for layer in layers] for _ in range(3))
        self.counts = torch.zeros(2, len(layers), dtype=torch.float64)  # tokens, predicting tokens

    def add(self, layer: int, x: Tensor, h: Tensor) -> None:
        """A layer's inputs at all tokens, its outputs at those that predict."""
        count = h.shape[:-1].numel()
        self.squares[layer] = x.square().flatten(0, -2).sum(0)
        self.magnitudes[layer] = rows_summed(h.abs())
        self.totals[layer] = rows_summed(h)
        self.spreads[layer] = rows_summed((h - self.totals[layer] / max(count, 1)).square())
        self.counts[:, layer] = torch.tensor([x.shape[:-1].numel(), count])

    def flat(self, sizes: list[int]) -> Tensor:
        """sizes: rows of every layer."""
        inputs, mean_abs, total, spread = (
            torch.cat([sums.cpu() for sums in layers]).double()
            for layers in (self.squares, self.magnitudes, self.totals, self.spreads)
        )
        squared_means = total.square() / counted(self.counts[1], sizes)
        return torch.cat([inputs, mean_abs, total, spread + squared_means, self.counts.flatten()])


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
