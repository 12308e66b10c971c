"""The masked model as a standard checkpoint: the source's files with the removed rows zeroed where they are stored.

The weight files are copied and the rows overwritten in place, so that every other byte is the source's. Packed weights
(GGUF, fp8, …) are written as the numbers that they stand for, in the dtype in which the edit was measured."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.edits.card import CardRecord, file_hashes, model_card, stored_in
from engine.edits.edit import Edit
from engine.edits.effect import Effect
from engine.edits.masks import Mask, checked_mask
from engine.edits.stored_rows import Stored
from engine.models.checkpoints import LICENCES, SMALL_FILES, WEIGHT_INDEX, Checkpoint
from engine.models.loading import DTYPES, plain_weights
from engine.models.row_index import RowIndex
from engine.models.rows import row_index
from engine.models.skeletons import quiet, skeleton
from engine.records.errors import InputError
from engine.records.files import check_new, new_folder, write_atomic
from engine.records.progress import Progress

CARD = "README.md"


@dataclass(frozen=True)
class Exported:
    folder: Path
    rows_removed: int
    weights_hash: str


def export_masked(
    checkpoint: Checkpoint,
    edit: Edit,
    out: Path,
    *,
    effect: Effect,
    allow_broken: bool = False,
    record: CardRecord | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write `checkpoint` with the rows of `edit` zeroed, biases included, and its model card, into `out`, complete or
    not at all. effect: what the edit was measured to do (`engine.studies.refusal.effect`).

    `InputError` where that is of another model or edit, lowers refusal, or breaks the model and that is not allowed."""
    check_place(edit, out)
    effect.check(edit, checkpoint.weights_hash(), allow_broken=allow_broken)
    model = skeleton(checkpoint)
    rows = row_index(model)
    mask = checked_mask(edit.units, rows.n_rows)
    packed = checkpoint.gguf is not None or checkpoint.dequantized_from is not None
    with new_folder(out) as partial:
        if packed:
            _write_plain(checkpoint, partial, stored_in(effect), progress)
        else:
            _copy(checkpoint, partial, progress)
        stored = Stored.of(Checkpoint(checkpoint.id, partial, None), model)
        _zero_stored_rows(partial, model, rows, mask, stored)
        exported_hash = Checkpoint(str(partial), partial, None).weights_hash()
        files = file_hashes(partial, but=CARD)
        card = model_card(checkpoint, edit, rows, exported_hash, effect, record, files=files)
        write_atomic(partial / CARD, card.encode())
    return Exported(out, len(mask), exported_hash)


def check_place(edit: Edit, out: Path) -> None:
    """`InputError` for a folder that holds anything, and for a mask that removes what the model needs most (MoRF)."""
    if edit.spec.get("order") == "morf":
        raise InputError(
            "this mask removes the most relevant rows first (MoRF), which is a measurement; "
            "export a LeRF mask or a refusal mask"
        )
    check_new(out)


def _write_plain(checkpoint: Checkpoint, folder: Path, dtype: str, progress: Progress | None) -> None:
    """The model as transformers saves it, with the tokenizer's files, generation settings and licence as they were."""
    model = plain_weights(checkpoint, DTYPES[dtype], progress=progress)
    model.generation_config = type(model.generation_config)()  # what it is copied over below may not be saved anew
    with quiet():
        model.save_pretrained(folder)
    _copy_small(checkpoint.folder, folder, but=("config.json", WEIGHT_INDEX))
    if checkpoint.gguf is not None and checkpoint.revision is not None:
        _copy_small(checkpoint.gguf.parent, folder, only=LICENCES)


def _copy_small(source: Path, folder: Path, but: tuple[str, ...] = (), only: tuple[str, ...] = SMALL_FILES) -> None:
    for file in sorted({file for pattern in only for file in source.glob(pattern) if file.is_file()}):
        if file.name not in but:
            shutil.copyfile(file, folder / file.name)


def _copy(checkpoint: Checkpoint, folder: Path, progress: Progress | None) -> None:
    _copy_small(checkpoint.folder, folder)
    weights = checkpoint.weight_files()
    for done, file in enumerate(weights):
        if progress:
            progress("copy weights", done, len(weights))
        shutil.copyfile(file, folder / file.name)
    if progress:
        progress("copy weights", len(weights), len(weights))


def _zero_stored_rows(folder: Path, model: Any, rows: RowIndex, mask: Mask, stored: Stored) -> None:
    for layer in rows.layers:
        first, last = np.searchsorted(mask, [layer.start, layer.start + layer.rows])
        if first == last:
            continue
        linear = model.get_submodule(layer.name)
        places = [stored.weight(layer.name, linear), stored.bias(layer.name, linear)]
        if places[0] is None or (places[1] is None and linear.bias is not None):
            raise InputError(
                f"{layer.name} is not stored row by row in this checkpoint (transformers converts it when it loads), "
                "so its rows cannot be zeroed in the files; apply the mask in memory (`engine.zeroed`) instead"
            )
        for place in places:
            if place is not None:
                place.zero(folder, mask[first:last] - layer.start)
