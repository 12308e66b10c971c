"""The masked model as a standard checkpoint: the source's files with the removed rows zeroed where they are stored.

The weight files are copied and the rows overwritten in place, so that every other byte is the source's. Packed weights
(GGUF, fp8, …) are written as the numbers that they stand for, in the dtype in which the edit was measured."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from engine.edits.card import CardRecord, file_hashes, model_card, stored_in
from engine.edits.edit import Edit
from engine.edits.edit_effect import Effect
from engine.edits.masks import Mask, checked_mask
from engine.models.checkpoints import LICENCES, SMALL_FILES, WEIGHT_INDEX, Checkpoint
from engine.models.experts import ExpertLinear, Slice, TransposedLinear
from engine.models.loading import DTYPES, plain_weights
from engine.models.row_index import RowIndex
from engine.models.rows_of_modules import row_index
from engine.models.skeletons import quiet, skeleton
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import check_new, new_folder, write_atomic
from engine.records.progress import Progress

_Bytes = npt.NDArray[np.uint8]
_Parts = dict[str, list["StoredTensor"]]  # source pattern of a conversion -> its tensors, in the order of the experts


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies in a safetensors file: byte range from the start of the file."""

    file: str
    shape: tuple[int, ...]
    start: int
    end: int

    def bytes_of(self, parts: int) -> int:
        """Bytes of each of so many equal parts."""
        whole, rest = divmod(self.end - self.start, parts)
        if rest:
            raise InputError(f"{self.file}: a part of a tensor is no whole number of bytes, so it cannot be zeroed")
        return whole


@dataclass(frozen=True)
class StoredRows:
    """Rows of one Linear in a stored tensor. rows_first: the tensor's bytes [..., item] as a view [rows, ...]."""

    tensor: StoredTensor
    rows_first: Callable[[_Bytes], _Bytes]

    def zero(self, folder: Path, rows: npt.NDArray[np.int64]) -> None:
        """Zero bytes for these rows, in place; every other byte stays."""
        shape = (*self.tensor.shape, self.tensor.bytes_of(prod(self.tensor.shape)))
        whole = np.memmap(folder / self.tensor.file, np.uint8, "r+", self.tensor.start, shape)
        self.rows_first(whole)[rows] = 0
        whole.flush()


@dataclass(frozen=True)
class Stored:
    """A checkpoint's tensors by the names that the loaded model gives them. whole: parameters that are stored as they
    are. merged: fused parameters that the file holds expert by expert, with the tensors of each source of transformers'
    conversion (of gate and up first the gates')."""

    whole: Mapping[str, StoredTensor]
    merged: Mapping[str, tuple[list[StoredTensor], ...]]

    @classmethod
    def of(cls, checkpoint: Checkpoint, model: Any) -> Stored:
        """Some families are stored under other names than they have in memory; transformers' own renaming is used.
        Tensors that are converted in any other way than by stacking experts are left out."""
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

        conversions = get_model_conversion_mapping(model)
        renamings = [entry for entry in conversions if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in conversions if isinstance(entry, WeightConverter)]
        parameters = model.state_dict()
        headers = {key: tensor for file in checkpoint.weight_files() for key, tensor in read_header(file).items()}
        whole: dict[str, StoredTensor] = {}
        parts: dict[str, _Parts] = {}
        for key in sorted(headers, key=dot_natural_key):  # the order in which transformers stacks them
            name, converted = rename_source_key(key, renamings, converters, model.base_model_prefix, parameters)
            if name not in parameters:
                continue
            if converted is not None:
                parts.setdefault(name, {}).setdefault(converted, []).append(headers[key])
            elif tuple(parameters[name].shape) == headers[key].shape:
                whole[name] = headers[key]
        merged = {name: _stacked(found, converters) for name, found in parts.items()}
        return cls(whole, {name: found for name, found in merged.items() if found})

    def weight(self, path: str, linear: nn.Linear) -> StoredRows | None:
        """Where the rows of the weight are; None where they are not stored as rows."""
        if isinstance(linear, ExpertLinear):
            return self._of_expert(path, linear.weight_slice, (linear.out_features, linear.in_features))
        columns = isinstance(linear, TransposedLinear)
        return self._whole(f"{path}.weight", (lambda stored: stored.swapaxes(0, 1)) if columns else _as_it_is)

    def bias(self, path: str, linear: nn.Linear) -> StoredRows | None:
        """Where the entries of the bias are; None where it has none or they are not stored."""
        if isinstance(linear, ExpertLinear):
            own_slice = linear.bias_slice
            return None if own_slice is None else self._of_expert(path, own_slice, (linear.out_features,))
        return self._whole(f"{path}.bias", _as_it_is)

    def _of_expert(self, path: str, part: Slice, shape: tuple[int, ...]) -> StoredRows | None:
        experts = path.rpartition(".")[0].rpartition(".")[0]  # of ...experts.3.gate_proj
        name = f"{experts}.{part.tensor}"
        if name in self.whole:
            return StoredRows(self.whole[name], part.of)
        sources = self.merged.get(name, ())
        number = part.start // part.count  # gate, then up, each a source of its own
        if part.step != 1 or part.swapped or number >= len(sources) or part.expert >= len(sources[number]):
            return None
        tensor = sources[number][part.expert]
        return StoredRows(tensor, _as_it_is) if tensor.shape == shape else None

    def _whole(self, name: str, rows_first: Callable[[_Bytes], _Bytes]) -> StoredRows | None:
        return StoredRows(self.whole[name], rows_first) if name in self.whole else None


def _as_it_is(stored: _Bytes) -> _Bytes:
    return stored


def _stacked(parts: _Parts, converters: list[Any]) -> tuple[list[StoredTensor], ...]:
    """The tensors by source, where the conversion only stacks experts and puts its sources one after the other."""
    converter = next((one for one in converters if set(parts) <= set(one.source_patterns)), None)
    if converter is None:
        return ()
    operations = [(type(one).__name__, getattr(one, "dim", None)) for one in converter.operations]
    stacks = operations == [("MergeModulelist", 0)] and len(parts) == 1
    joins = operations == [("MergeModulelist", 0), ("Concatenate", 1)]
    return tuple(parts[source] for source in converter.source_patterns if source in parts) if stacks or joins else ()


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Name, shape and byte range of every tensor of a safetensors file."""
    try:
        header = bounds.tensors(file, None)
    except (OSError, bounds.BadFile) as error:
        raise InputError(f"{file} is no readable safetensors file ({error}); copy it again") from None
    return {name: StoredTensor(file.name, one.shape, one.start, one.stop) for name, one in header.items()}


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
