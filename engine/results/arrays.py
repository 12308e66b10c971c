"""Named arrays of a store: one safetensors file per key, with the SHA-256 of what is in it in its metadata."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.records.files import same_bytes, write_atomic
from engine.results.damage import move_aside, tell, unusable

Arrays = dict[str, npt.NDArray[Any]]
CHECKSUM = "sha256"


class ArrayFiles:
    """`arrays/KEY.safetensors` of a store. A file without a checksum is an earlier version's: taken as it is."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def path(self, key: str) -> Path:
        return self._store / "arrays" / f"{key}.safetensors"

    def load(self, key: str, fits: Callable[[Arrays], bool] | None) -> Arrays | None:
        """As `Store.load_arrays`."""
        path = self.path(key)
        if not os.path.lexists(path):
            return None
        try:
            found = _read(path) if path.is_file() else None
        except FileNotFoundError:  # another process has just set it aside
            return None
        except OSError as error:
            raise unusable(self._store, error) from None
        if found is not None:
            arrays, told = found
            if (told is None or told == checksum(key, arrays)) and (fits is None or fits(arrays)):
                return arrays
        tell(self._store, f"arrays/{path.name}")
        try:
            move_aside(self._store, path)
        except OSError as error:
            raise unusable(self._store, error) from None
        return None

    def save(self, key: str, arrays: Arrays, metadata: Mapping[str, str]) -> None:
        from safetensors.numpy import save

        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        content = same_bytes(save(whole, metadata={**metadata, CHECKSUM: checksum(key, whole)}))
        try:
            write_atomic(self.path(key), content)
        except OSError as error:
            raise unusable(self._store, error) from None


def read_checked(path: Path) -> tuple[str | None, bool] | None:
    """The checksum that a file of arrays names, and whether it fits them; None where it cannot be read at all."""
    try:
        found = _read(path) if path.is_file() else None
    except OSError:
        return None
    return None if found is None else (found[1], found[1] == checksum(path.stem, found[0]))


def checksum(key: str, arrays: Arrays) -> str:
    """SHA-256 over the key, and names, types, shapes and bytes of the arrays in the order of their names."""
    digest = hashlib.sha256(f"{key}\n".encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[Arrays, str | None] | None:
    """The arrays and the checksum that stands beside them; None where the file is no such file. Errors: OSError."""
    from safetensors import SafetensorError, safe_open

    with path.open("rb") as stream:  # the library says of every failure that it is one of its own
        if not stream.read(1):
            return None
    try:
        with safe_open(path, framework="numpy") as tensors:
            told = (tensors.metadata() or {}).get(CHECKSUM)
            return {name: tensors.get_tensor(name) for name in tensors.keys()}, told  # noqa: SIM118 - no mapping
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError):
        return None
