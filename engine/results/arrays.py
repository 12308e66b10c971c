"""Named arrays of a store: one safetensors file per key, with the SHA-256 of what is in it in its metadata. A file
without a checksum is an earlier version's: taken as it is."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.records.files import same_bytes, write_atomic

Arrays = dict[str, npt.NDArray[Any]]
CHECKSUM = "sha256"


def array_file(store: Path, key: str) -> Path:
    return store / "arrays" / f"{key}.safetensors"


def save_arrays(path: Path, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Named arrays and their checksum, atomically. Errors: OSError."""
    from safetensors.numpy import save

    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_atomic(path, same_bytes(save(whole, metadata={**metadata, CHECKSUM: checksum(path.stem, whole)})))


def read_checked(path: Path) -> tuple[str | None, bool] | None:
    """The checksum that a file of arrays names, and whether it fits them; None where it cannot be read at all."""
    try:
        found = read_arrays(path) if path.is_file() else None
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


def read_arrays(path: Path) -> tuple[Arrays, str | None] | None:
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
