"""Where the rows of a Linear lie in a checkpoint's files: as they are, as columns, or as slices of fused experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from engine.models.checkpoints import Checkpoint
from engine.models.experts import ExpertLinear, Slice, TransposedLinear
from engine.records import bounds
from engine.records.errors import InputError

_Bytes = npt.NDArray[np.uint8]
_Parts = dict[str, list["StoredTensor"]]  # source pattern of a conversion -> its tensors, in the order of the experts


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
        return self.bytes_of(self.shape[0])

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
            part = linear.bias_slice
            return None if part is None else self._of_expert(path, part, (linear.out_features,))
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
