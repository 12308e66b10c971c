"""The masked model as a standard checkpoint: the source's files with the removed rows zeroed where they are stored.

The weight files are copied and the rows overwritten in place, in the stored dtype, so that every other byte is
the source's: shards stay shards, tied weights stay written once, and no model is held in memory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.edits.card import CardRecord, model_card
from engine.edits.card_claims import file_hashes
from engine.edits.edit import Edit
from engine.edits.effect import Effect
from engine.edits.masks import Mask, checked_mask
from engine.models.checkpoints import SMALL_FILES, Checkpoint
from engine.models.rows import RowIndex, row_index
from engine.models.skeletons import skeleton
from engine.records.errors import InputError
from engine.records.progress import Progress

CARD = "README.md"


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies in a safetensors file: byte range from the start of the file."""

    file: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry of the first dimension."""
        whole, rest = divmod(self.end - self.start, self.shape[0])
        if rest:
            raise InputError(f"{self.file}: a row of a tensor is no whole number of bytes, so it cannot be zeroed")
        return whole


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
    record: CardRecord | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write `checkpoint` with the rows of `edit` zeroed, biases included, and its model card, into `out`.

    effect: what the edit was measured to do to refusal (`engine.studies.refusal.effect`); `InputError` where it is of
    another model or edit, or lowers refusal. `out` appears complete or not at all; see also `check_place`.
    """
    check_place(edit, out)
    effect.check(edit, checkpoint.weights_hash())
    model = skeleton(checkpoint)
    rows = row_index(model)
    mask = checked_mask(edit.units, rows.n_rows)
    stored = stored_tensors(checkpoint, model)
    partial = out.absolute().with_name(f".{out.absolute().name}.{os.getpid()}.part")
    try:
        _make(partial)
        _copy(checkpoint, partial, progress)
        _zero_stored_rows(partial, model, rows, mask, stored)
        exported_hash = Checkpoint(str(partial), partial, None).weights_hash()
        files = file_hashes(partial, but=CARD)
        card = model_card(checkpoint, edit, rows, exported_hash, effect, record, files=files)
        (partial / CARD).write_text(card, encoding="utf-8")
        if out.is_dir():
            out.rmdir()  # empty, as checked; os.replace wants it gone on some systems
        os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Exported(out, len(mask), exported_hash)


def check_place(edit: Edit, out: Path) -> None:
    """`InputError` for a folder that holds anything, and for a mask that removes what the model needs most (MoRF),
    which is a measurement and no model for anybody to load.
    """
    if edit.spec.get("order") == "morf":
        raise InputError(
            "this mask removes the most relevant rows first (MoRF), which is a measurement; "
            "export a LeRF mask or a refusal mask"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already and not empty; give a new folder with --out")


def stored_tensors(checkpoint: Checkpoint, model: Any) -> dict[str, StoredTensor]:
    """Where each parameter of the model (its name in the loaded model) is stored.

    Some families are stored under other names than they have in memory; transformers' own renaming is used.
    Tensors that are stored in another layout (fused, transposed) are left out.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    conversions = get_model_conversion_mapping(model)
    renamings = [entry for entry in conversions if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in conversions if isinstance(entry, WeightConverter)]
    parameters = model.state_dict()
    stored: dict[str, StoredTensor] = {}
    for file in checkpoint.weight_files():
        for key, tensor in read_header(file).items():
            name, converted = rename_source_key(key, renamings, converters, model.base_model_prefix, parameters)
            if converted is None and name in parameters and tuple(parameters[name].shape) == tensor.shape:
                stored[name] = tensor
    return stored


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Name, shape and byte range of every tensor of a safetensors file (8 bytes of length, JSON, data)."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > file.stat().st_size:
                raise ValueError("the header is longer than the file")
            header: Mapping[str, Any] = json.loads(stream.read(length))
        return {
            key: StoredTensor(
                file.name, tuple(entry["shape"]), *(8 + length + offset for offset in entry["data_offsets"])
            )
            for key, entry in header.items()
            if key != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is no readable safetensors file ({error}); copy it again") from None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise InputError(
            f"cannot make a folder beside {folder.parent} ({error.strerror}); give another --out"
        ) from None


def _copy(checkpoint: Checkpoint, folder: Path, progress: Progress | None) -> None:
    small = {file for pattern in SMALL_FILES for file in checkpoint.folder.glob(pattern) if file.is_file()}
    for file in sorted(small):
        shutil.copyfile(file, folder / file.name)
    weights = checkpoint.weight_files()
    for done, file in enumerate(weights):
        if progress:
            progress("copy weights", done, len(weights))
        shutil.copyfile(file, folder / file.name)
    if progress:
        progress("copy weights", len(weights), len(weights))


def _zero_stored_rows(folder: Path, model: Any, rows: RowIndex, mask: Mask, stored: Mapping[str, StoredTensor]) -> None:
    for layer in rows.layers:
        first, last = np.searchsorted(mask, [layer.start, layer.start + layer.rows])
        if first == last:
            continue
        weight, bias = stored.get(f"{layer.name}.weight"), stored.get(f"{layer.name}.bias")
        if weight is None or (bias is None and model.get_submodule(layer.name).bias is not None):
            raise InputError(
                f"{layer.name} is not stored row by row in this checkpoint (transformers converts it when it loads), "
                "so its rows cannot be zeroed in the files; apply the mask in memory (`engine.zeroed`) instead"
            )
        for tensor in (weight, bias):
            if tensor is None:
                continue
            zeros = bytes(tensor.row_bytes)
            with (folder / tensor.file).open("r+b") as stream:
                for row in (mask[first:last] - layer.start).tolist():
                    stream.seek(tensor.start + row * len(zeros))
                    stream.write(zeros)
