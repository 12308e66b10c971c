"""What one row does at every token of a text: its output, and its relevance to what comes next."""

import torch
from torch import Tensor

from engine.data.corpora import Windows
from engine.edits.masks import checked_mask
from engine.models.loading import LoadedModel, input_device
from engine.selectors.attribution import Method, relevance
from engine.selectors.passes import (
    BatchSize,
    in_batches,
    objective_gradient,
    watching,
    wide,
    windows_per_pass,
)
from engine.selectors.seen import Seen


@torch.inference_mode()
def row_outputs(loaded: LoadedModel, windows: Windows, row_id: int, *, batch_size: BatchSize = "auto") -> Tensor:
    """h_i at every token of the text: output i of the row's Linear, of the token that is read there. One forward pass,
    under the model's lock.

    returns [windows, T] float32 on the CPU; 0 at tokens that a routed expert does not see
    Errors: InputError for a row id that is not this model's.
    """
    chosen = torch.from_numpy(checked_mask([row_id], loaded.rows.n_rows))
    batch = windows_per_pass(batch_size, loaded.model, loaded.rows, windows.read_ids.shape[1])
    with loaded.lock:
        found = in_batches(lambda part: outputs_of(loaded, windows, part, chosen), len(windows.input_ids), batch)
        return torch.cat([outputs for _, outputs in found], 1).view(windows.input_ids.shape)


def row_relevance(
    loaded: LoadedModel, windows: Windows, row_id: int, *, method: Method = "lrp", batch_size: BatchSize = "auto"
) -> Tensor:
    """R_i at every token: relevance of output i at that position to F = sum over its window of log p(next token), nats.

    lrp: R = h * dF/dh under AttnLRP's rules; other methods as in `engine.selectors.attribution`. F is the negative of
    the loss that the scores attribute: above 0, what the row did there made the tokens behind it likelier. The mean of
    abs(R) over all positions but each window's last is the row's score. One forward and backward pass (ig: 16), under
    the model's lock.

    returns [windows, T] float32 on the CPU; 0 at each window's last position, which predicts nothing
    Errors: InputError for a row id that is not this model's, and an architecture without rules under lrp.
    """
    (row,) = checked_mask([row_id], loaded.rows.n_rows).tolist()
    mine = next(layer for layer in loaded.rows.layers if layer.start <= row < layer.start + layer.rows)
    n, length = windows.read_ids.shape

    def work(part: slice) -> Tensor:
        ids = windows.read_ids[part]
        found = torch.zeros(ids.shape)

        def reduce(layer: int, values: Tensor) -> None:
            if layer == mine.index:
                found[:, :-1] = values[:, :-1, row - mine.start].float().cpu()

        def gradient_of(logits: Tensor) -> Tensor:
            return objective_gradient(logits, ids, "loss").neg_()

        with loaded.lock:
            relevance(method, loaded.model, loaded.rows, ids, gradient_of, reduce)
        return found[:, len(windows.prefix) :]

    batch = windows_per_pass(batch_size, loaded.model, loaded.rows, length)
    return torch.cat([found for _, found in in_batches(work, n, batch)])


def outputs_of(loaded: LoadedModel, windows: Windows, part: slice, chosen: Tensor) -> Tensor:
    """Outputs of the chosen rows (ascending) at every token of some of the windows. [rows, B * length] float32, CPU

    A routed expert's are 0 at tokens that it does not see. The caller holds the model's lock, in inference mode.
    """
    input_ids, first = windows.read_ids[part], len(windows.prefix)
    local = {}
    for layer in loaded.rows.layers:
        inside = chosen[(chosen >= layer.start) & (chosen < layer.start + layer.rows)]
        if len(inside):
            local[layer.index] = inside - layer.start
    seen: dict[int, Tensor] = {}

    def keep(layer: int, _: Tensor, output: Tensor, where: Seen) -> None:
        if layer in local:
            picked = where.by_token(output[..., local[layer].to(output.device)])[:, first:].flatten(0, 1)
            seen[layer] = wide(picked).T.cpu()

    with watching(loaded.model, loaded.rows, (input_ids.shape[0], input_ids.shape[1]), keep):
        loaded.model(input_ids=input_ids.to(input_device(loaded.model)), use_cache=False, logits_to_keep=1)
    unseen = torch.zeros(1, input_ids[:, first:].numel())
    return torch.cat([seen.get(layer, unseen.expand(len(rows), -1)) for layer, rows in local.items()])
