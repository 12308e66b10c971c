"""Where results live: cells keyed by everything that can change them, arrays beside them. Nothing is pickled and
nothing pickled is ever read. Imports neither torch nor transformers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError
from engine.records.files import same_bytes, write_atomic
from engine.results.cells import Cells
from engine.results.damage import move_aside, tell, unusable
from engine.results.places import (
    INSIDE,
    check_store,
    default_store_dir,  # noqa: F401 - where others look for it
    results_dir,
    store_folder,
)

Arrays = dict[str, npt.NDArray[Any]]
CHECKSUM = "sha256"


def array_file(store: Path, key: str) -> Path:
    return store / "arrays" / f"{key}.safetensors"


def read_checked(path: Path) -> tuple[str | None, bool] | None:
    """The checksum that a file of arrays names, and whether it fits them; None where it cannot be read at all."""
    try:
        arrays = read_arrays(path) if path.is_file() else None
    except OSError:
        return None
    return None if arrays is None else (arrays[1], arrays[1] == checksum(path.stem, arrays[0]))


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
            stored_checksum = (tensors.metadata() or {}).get(CHECKSUM)
            return {name: tensors.get_tensor(name) for name in tensors.keys()}, stored_checksum  # noqa: SIM118 - no mapping
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError):
        return None


class Store(Cells):
    """A folder of cached cells (`get`, `put`) and arrays (`load_arrays`, `save_arrays`), readable by its owner only.

    Each is kept with the SHA-256 of its value. One that does not fit it, or cannot be read, is set aside in the folder
    `damaged`, told of once in a run, and computed again. So is an index that is no database any more, with those of its
    cells that still fit their checksum taken over. Entries of versions before there were checksums are taken as they
    are.

    Errors: InputError, which names the store, where it cannot be read or written (full disk, read-only, held by another
    process); what was kept before stays whole."""

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = store_folder(folder)
        try:
            check_store(self.folder)
            for part in (self.folder, *(self.folder / name for name in INSIDE)):
                part.mkdir(parents=True, exist_ok=True)
                part.chmod(0o700)
        except InputError:  # it is a ValueError
            raise
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot write to the store {self.folder} ({why}); give a writable folder with --store"
            ) from None
        super().__init__(self.folder)

    def load_arrays(self, key: str, fits: Callable[[Arrays], bool] | None = None) -> Arrays | None:
        """Named arrays under `key`, None if they are not there.
        fits: are these arrays what belongs under the key? Asked since files without a checksum may hold anything."""
        path = array_file(self.folder, key)
        if not os.path.lexists(path):
            return None
        try:
            content = read_arrays(path) if path.is_file() else None
        except FileNotFoundError:  # another process has just set it aside
            return None
        except OSError as error:
            raise unusable(self.folder, error) from None
        if content is not None:
            arrays, told = content
            if (told is None or told == checksum(key, arrays)) and (fits is None or fits(arrays)):
                return arrays
        tell(self.folder, f"arrays/{path.name}")
        try:
            move_aside(self.folder, path)
        except OSError as error:
            raise unusable(self.folder, error) from None
        return None

    def save_arrays(self, key: str, arrays: Arrays, metadata: dict[str, str]) -> None:
        """Keep named arrays, atomically; equal arrays give equal bytes."""
        from safetensors.numpy import save

        whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        content = same_bytes(save(whole, metadata={**metadata, CHECKSUM: checksum(key, whole)}))
        try:
            write_atomic(array_file(self.folder, key), content)
        except OSError as error:
            raise unusable(self.folder, error) from None

    def results_dir(self, model_id: str) -> Path:
        """Default folder for the tables of one model."""
        return results_dir(self.folder, model_id)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
