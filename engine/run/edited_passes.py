"""How an edit is carried out for a measure: in the weights, without what it kills, or at the outputs, several at once;
from the first edited block on; in batches that fit. A key holds what of it can change the last bits."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from engine.edits.edit import UNEDITED, AnyEdit
from engine.interventions.at_outputs import applied, edited_outputs, goes_into_weights, sees_sequences
from engine.interventions.compaction import VERSION as COMPACTION, compacts
from engine.interventions.earlier_blocks import FromFirstEdited
from engine.measures.base import Derived, Measure, Stored, TokenMeasure
from engine.measures.predictions import (
    VERSION as PIECES,
    Under,
    batch_of,
    evaluation_batch_size,
    in_pieces,
    kind_of,
    result_of,
    sums_of,
    token_values,
    values_beside_unedited,
    windows_that_fit,
)
from engine.models.loading import LoadedModel
from engine.models.products import faster_products
from engine.records.errors import InputError
from engine.records.hashing import Json

R = TypeVar("R")
EDITS_TOGETHER = 8  # at most, in one pass over little text
# Tokens that fill a pass. On a processor eight edits of 256 tokens each take 7.2 CPU seconds in the weights and 6.5 in
# one pass, and one takes .94 and 6.4 (SmolLM2; tests/benchmarks, little-text). On an H200 plain passes of 512, 2,048
# and 8,192 tokens take 12, 16 and 55 ms in the shape of Llama-3.2-1B, 22, 67 and 254 ms in that of 8B (card, card-8B).
ENOUGH_TOKENS = {"cpu": 256, "cuda": 512}
EDITS_BESIDE_UNEDITED = 16  # that share one set of passes of the unedited model


def pass_record(loaded: LoadedModel, measure: Stored[Any]) -> Json:
    """What a cell's key says of the passes: their size, skipping of dead neurons (`engine.interventions.compaction`),
    and logits in pieces (`engine.measures.predictions`)."""
    if isinstance(measure, Derived):
        return pass_record(loaded, measure.base)
    if not isinstance(measure, TokenMeasure):
        return _compaction(loaded) if isinstance(measure, Measure) and measure.skips_dead else {}
    pieces = in_pieces(loaded.model, kind_of(loaded.device), measure.windows.read_ids.shape[1])
    record: Json = {"logits_in_pieces": PIECES} if pieces else {}
    if measure.beside_unedited:
        return {"batch": [evaluation_batch_size(loaded, measure.windows), _copies(loaded, measure)], **record}
    fit, enough = _fit_and_enough(loaded, measure)
    if enough < fit:  # nothing else tells these cells from those of earlier versions, which filled the pass
        record["edits_together"] = enough
    return {"batch_size": batch_of(loaded, measure), **_compaction(loaded), **record}


def edits_together(loaded: LoadedModel, measure: Measure[Any]) -> int:
    """How many edits are measured in one go. Of token measures several on little text only, as many as fill a pass:
    else the weights, where dead neurons cost nothing. Beside the unedited model always several, so nothing is put into
    the weights."""
    if not isinstance(measure, TokenMeasure):
        return max(1, measure.together(loaded))
    if measure.beside_unedited:
        return EDITS_BESIDE_UNEDITED
    if not sees_sequences(loaded):
        return 1
    return min(_fit_and_enough(loaded, measure))


def _fit_and_enough(loaded: LoadedModel, measure: TokenMeasure[Any]) -> tuple[int, int]:
    """Edits whose windows fit one pass, and those whose windows fill one; at least one each. From sizes alone."""
    tokens = measure.size * measure.windows.read_ids.shape[1]
    fit = min(windows_that_fit(loaded, measure.windows) // measure.size, EDITS_TOGETHER)
    return max(1, fit), max(1, ENOUGH_TOKENS[kind_of(loaded.device)] // tokens)


def sequences_per_edit(loaded: LoadedModel, measure: Stored[Any]) -> float:
    """How many sequences go forward for each of `measure.passes` under one of many edits: beside the unedited model its
    own too, of which a pass has the shape of an edited one and serves `EDITS_BESIDE_UNEDITED` edits."""
    if not isinstance(measure, TokenMeasure) or not measure.beside_unedited:
        return 1.0
    copies = _copies(loaded, measure)
    return copies * (1 + math.ceil(EDITS_BESIDE_UNEDITED / copies)) / EDITS_BESIDE_UNEDITED


def measured(loaded: LoadedModel, measure: Measure[R], edits: Sequence[AnyEdit]) -> list[R]:
    """Under each of at most `edits_together` edits."""
    if isinstance(measure, TokenMeasure):
        values = token_values_under(loaded, measure, edits)
        return [_result(loaded, measure, *of_edit) for of_edit in zip(edits, values, strict=True)]
    if edits_together(loaded, measure) > 1:
        with faster_products():
            return measure.measure_each(loaded, edits)
    [edit] = edits
    with applied(loaded, edit, skip_dead=measure.skips_dead), faster_products():
        return [measure.measure(loaded, edit)]


def token_values_under(
    loaded: LoadedModel, measure: TokenMeasure[Any], edits: Sequence[AnyEdit]
) -> list[Sequence[Tensor]]:
    """For each edit the values of every predicted token, [k, windows, length - 1] of each pass, on the device."""
    windows, together = range(measure.size), edits_together(loaded, measure)
    if measure.beside_unedited:
        with faster_products(), _at_outputs(loaded, [UNEDITED, *edits]) as under:
            return [*values_beside_unedited(loaded, measure, len(edits), _copies(loaded, measure), under)]
    if together > 1:
        # A pass has the same shape however many edits are still unknown, so that equal runs give equal bits.
        sequences = [(min(number, len(edits) - 1), window) for number in range(together) for window in windows]
        with faster_products(), _at_outputs(loaded, edits) as under:
            values = token_values(loaded, measure, sequences, len(sequences), under)
        return [[of_edit] for of_edit in torch.cat(values, 1).split(len(windows), 1)[: len(edits)]]
    [edit] = edits
    with applied(loaded, edit, skip_dead=True), faster_products():
        early = FromFirstEdited(loaded, edits, compacted=goes_into_weights(edit))
        alone = [(0, window) for window in windows]
        return [token_values(loaded, measure, alone, batch_of(loaded, measure), lambda _, ids: early.over(ids))]


@contextmanager
def _at_outputs(loaded: LoadedModel, edits: Sequence[AnyEdit]) -> Iterator[Under]:
    """Inside: what is given is around passes whose sequences carry these edits, by number."""
    early = FromFirstEdited(loaded, edits)
    with edited_outputs(loaded, edits) as outputs:

        @contextmanager
        def under(which: Sequence[int], ids: Tensor) -> Iterator[None]:
            with outputs.sequences(which), early.over(ids):
                yield

        yield under


def _copies(loaded: LoadedModel, measure: TokenMeasure[Any]) -> int:
    """Under how many edits windows are passed at once, beside the unedited model."""
    fit = windows_that_fit(loaded, measure.windows)
    return min(fit // min(fit, measure.size), EDITS_BESIDE_UNEDITED) if sees_sequences(loaded) else 1


def _compaction(loaded: LoadedModel) -> Json:
    return {"compaction": COMPACTION[kind_of(loaded.device)] if compacts(loaded) else None}


def _result(loaded: LoadedModel, measure: TokenMeasure[R], edit: AnyEdit, values: Sequence[Tensor]) -> R:
    """A model that breaks under an edit may say NaN; one that does so unedited, or in float16, was not measured."""
    sums = sums_of(values)
    if not all(map(math.isfinite, sums[0])) and not (edit.size and loaded.dtype != "float16"):
        float32 = loaded.dtype == "float32"
        advice = "check the model's weights" if float32 else "run again with --dtype bfloat16 or float32"
        raise InputError(
            f"{loaded.id} gives no finite {measure.called} with {edit.size:,} rows removed ({loaded.dtype}); {advice}"
        )
    return result_of(measure, sums)
