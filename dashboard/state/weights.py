"""Weight matrices of the shipped model without torch, for figures."""

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
    """Where a projection's weights lie in the file."""

    block: int
    projection: str
    stored: bounds.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows = outputs, columns = inputs."""
        return self.stored.shape


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
    for name, stored in header.items():
        match = _NAME.fullmatch(name)
        if match and len(stored.shape) == 2:
            found.append(Matrix(int(match[1]), match[2], stored))
    return tuple(sorted(found, key=lambda entry: entry.block))


@while_unchanged(8, lambda path, entry: (path,))
def _values(path: Path, entry: Matrix) -> npt.NDArray[np.float32]:
    try:
        with path.open("rb") as file:
            file.seek(entry.stored.start)
            content = file.read(entry.stored.stop - entry.stored.start)
        values = entry.stored.array(content).astype(np.float32)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    values.flags.writeable = False
    return values


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} cannot be read ({error}); restore it from the repository or rebuild it with "
        "`python -m precomputed.recipe`"
    )
