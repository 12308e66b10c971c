"""Weight matrices of the shipped model without torch, for figures. numpy has no bfloat16: its bits are widened here."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import precomputed
from dashboard.state.results import while_unchanged
from engine.records import bounds
from engine.records.errors import InputError

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


def _path() -> Path:
    return precomputed.demo_model_dir() / "model.safetensors"


def matrix(block: int, projection: str) -> npt.NDArray[np.float32]:
    """Weights of one projection, exactly. [rows, columns] float32"""
    for entry in matrices():
        if (entry.block, entry.projection) == (block, projection):
            return _values(_path(), entry)
    raise InputError(f"the shipped model has no {projection} in block {block}")


@while_unchanged(2, lambda: (_path(),))
def matrices() -> tuple[Matrix, ...]:
    """The shipped model's projections, in the order of blocks; `InputError` where its file is missing or damaged."""
    path = _path()
    try:
        header = bounds.tensors(path)
    except (OSError, bounds.BadFile) as error:
        raise _damaged(path, error) from None
    found = []
    for name, (dtype, shape, start, stop) in header.items():
        match = _NAME.fullmatch(name)
        if match and len(shape) == 2:
            found.append(Matrix(int(match[1]), match[2], (shape[0], shape[1]), dtype, start, stop))
    return tuple(sorted(found, key=lambda entry: entry.block))


@while_unchanged(8, lambda path, entry: (path,))
def _values(path: Path, entry: Matrix) -> npt.NDArray[np.float32]:
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
        f"{path} cannot be read ({error}); restore it from the repository or rebuild it with "
        "`python -m precomputed.recipe`"
    )
