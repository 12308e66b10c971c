"""Where in a text a row is most active: its strongest tokens, with a few tokens of context."""

from typing import Any

import numpy.typing as npt
import polars as pl
import torch

from engine.data.corpora import Windows
from engine.edits.masks import checked_mask
from engine.measures.row_values import outputs_of
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.selectors.passes import BatchSize, in_batches, windows_per_pass

SCHEMA = {
    "row_id": pl.Int64,
    "place": pl.Int64,  # 1 = where the row is most active
    "value": pl.Float64,  # the row's output there, signed
    "window": pl.Int64,
    "position": pl.Int64,  # in the window, from 0
    "before": pl.String,
    "token": pl.String,
    "after": pl.String,
}


@torch.inference_mode()
def row_examples(
    loaded: LoadedModel,
    windows: Windows,
    row_ids: npt.ArrayLike,
    *,
    top: int = 5,
    context: int = 6,
    batch_size: BatchSize = "auto",
) -> pl.DataFrame:
    """The `top` tokens at which abs(h_i) is largest, for every row i of `row_ids`; h = the Linear's output.

    The value belongs to the token that is read at that position, not to the one that is predicted there. One
    forward pass over the windows, under the model's lock. Of equal outputs the first in the text comes first.
    context: tokens of the window that are given as text on either side.

    returns `SCHEMA`, ordered by row id and place; fewer than `top` where the text is shorter
    Errors: InputError for row ids that are not this model's, repeated ones, and top < 1 or context < 0.
    """
    if top < 1 or context < 0:
        raise InputError(f"expected top >= 1 and context >= 0, got top {top} and context {context}")
    chosen = torch.from_numpy(checked_mask(row_ids, loaded.rows.n_rows))
    length = windows.input_ids.shape[1]
    values = torch.empty(len(chosen), 0)  # [rows, <= top], the strongest outputs so far
    places = torch.empty(len(chosen), 0, dtype=torch.int64)  # window * length + position of each
    if len(chosen):
        batch = windows_per_pass(batch_size, loaded.model, loaded.rows, windows.read_ids.shape[1])
        with loaded.lock:
            for part, outputs in in_batches(
                lambda part: outputs_of(loaded, windows, part, chosen), len(windows.input_ids), batch
            ):
                here = torch.arange(part.start * length, part.stop * length).expand(len(chosen), -1)
                values, places = torch.cat([values, outputs], 1), torch.cat([places, here], 1)
                # Stable: of equal outputs the first in the text stays first, whatever the batch size.
                order = values.abs().sort(dim=1, descending=True, stable=True).indices[:, :top]
                values, places = values.gather(1, order), places.gather(1, order)
    lines = []
    for row, row_values, row_places in zip(chosen.tolist(), values.tolist(), places.tolist(), strict=True):
        for place, (value, where) in enumerate(zip(row_values, row_places, strict=True), 1):
            window, position = divmod(where, length)
            texts = _in_context(loaded.tokenizer, windows.input_ids[window].tolist(), position, context)
            lines.append((row, place, value, window, position, *texts))
    return pl.DataFrame(lines, schema=SCHEMA, orient="row")


def _in_context(tokenizer: Any, ids: list[int], position: int, context: int) -> tuple[str, str, str]:
    """Texts before, at and after a position of one window."""
    parts = (
        ids[max(0, position - context) : position],
        ids[position : position + 1],
        ids[position + 1 : position + 1 + context],
    )
    before, token, after = (tokenizer.decode(part) for part in parts)
    return before, token, after
