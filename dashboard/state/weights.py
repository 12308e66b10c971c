"""Weight matrices of the shipped model without torch, for figures. numpy has no bfloat16: its bits are widened here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

import precomputed
from dashboard.state.results import stamp
from engine.records.errors import InputError

_HEADER_BYTES = 100_000_000  # the format's own limit
_NAME = re.compile(r".*\.layers\.(\d+)\.(?:\w+\.)*(\w+_proj)\.weight")


@dataclass(frozen=True)
class Matrix:
    """Where a projection's weights lie in the file. shape: (rows = outputs, columns = inputs)."""

    block: int
    projection: str
    shape: tuple[int, int]
    dtype: str
    start: int
    stop: int


def matrices() -> list[Matrix]:
    """The shipped model's projections, in the order of blocks; `InputError` where its file is missing or damaged."""
    path = _path()
    return list(_matrices(path, stamp(path)))


def matrix(block: int, projection: str) -> npt.NDArray[np.float32]:
    """Weights of one projection, exactly. [rows, columns] float32"""
    path = _path()
    for entry in matrices():
        if (entry.block, entry.projection) == (block, projection):
            return _values(path, entry, stamp(path))
    raise InputError(f"the shipped model has no {projection} in block {block}")


def _path() -> Path:
    return precomputed.demo_model_dir() / "model.safetensors"


@lru_cache(maxsize=2)
def _matrices(path: Path, _file_stamp: object) -> tuple[Matrix, ...]:
    """safetensors: 8 bytes of length (little endian), so much JSON, then the tensors' bytes."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= _HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            content = file.read(length)
        if len(content) < length:
            raise ValueError("the file ends within its header")
        header = json.loads(content)
        found = []
        for name, entry in header.items():
            match = _NAME.fullmatch(name)
            if match and len(entry["shape"]) == 2:
                first, last = (8 + length + offset for offset in entry["data_offsets"])
                shape = (int(entry["shape"][0]), int(entry["shape"][1]))
                found.append(Matrix(int(match[1]), match[2], shape, str(entry["dtype"]), first, last))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from None
    return tuple(sorted(found, key=lambda entry: entry.block))


@lru_cache(maxsize=8)
def _values(path: Path, entry: Matrix, _file_stamp: object) -> npt.NDArray[np.float32]:
    try:
        with path.open("rb") as file:
            file.seek(entry.start)
            content = file.read(entry.stop - entry.start)
        if entry.dtype == "BF16":  # the upper half of a float32
            values = (np.frombuffer(content, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(content, {"F32": "<f4", "F16": "<f2"}[entry.dtype]).astype(np.float32)
        shaped = values.reshape(entry.shape)
    except (OSError, ValueError, KeyError) as error:
        raise _damaged(path, error) from None
    shaped.flags.writeable = False
    return shaped


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} cannot be read ({error!r}); restore it from the repository or rebuild it with "
        "`python -m precomputed.recipe`"
    )
