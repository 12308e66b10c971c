"""Where results live: cells keyed by everything that can change them, arrays beside them.

The index is a diskcache database of JSON texts; arrays are safetensors files. Nothing is pickled and
nothing pickled is ever read. Imports neither torch nor transformers.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import diskcache
import numpy as np
import numpy.typing as npt
import platformdirs
from diskcache.core import MODE_BINARY, MODE_RAW, UNKNOWN

from engine.records.errors import InputError
from engine.records.files import write_atomic
from engine.records.hashing import Json

_NO_LIMIT = 2**62  # diskcache evicts silently at its default of 1 GiB


class JsonDisk(diskcache.Disk):
    """Keys are text, values are JSON; an entry in any other mode (pickle above all) is an error, not loaded."""

    def put(self, key: Any) -> tuple[str, bool]:
        if not isinstance(key, str):
            raise TypeError(f"store keys are text, got {type(key).__name__}")
        return key, True

    def get(self, key: Any, raw: Any) -> str:
        if not raw or not isinstance(key, str):
            raise InputError("the store's index holds an entry that this software did not write; use another --store")
        return key

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Any:
        return super().store(json.dumps(value, separators=(",", ":")).encode(), False, key=key)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode not in (MODE_RAW, MODE_BINARY):
            raise InputError("the store's index holds an entry that this software did not write; use another --store")
        content = super().fetch(mode, filename, value, False)
        return json.loads(bytes(content))


def default_store_dir() -> Path:
    """`$SELECTOR_AUDIT_STORE`, or `selector-audit` in the user's cache folder."""
    given = os.environ.get("SELECTOR_AUDIT_STORE")
    if given:
        return Path(given).expanduser()
    return platformdirs.user_cache_path("selector-audit", appauthor=False)


class Store:
    """A folder of cached cells (`get`, `put`) and arrays (`load_arrays`, `save_arrays`), readable by its owner only."""

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = Path(folder).expanduser() if folder else default_store_dir()
        try:
            for part in (self.folder, self.folder / "cells", self.folder / "arrays", self.folder / "results"):
                part.mkdir(parents=True, exist_ok=True)
                part.chmod(0o700)
        except OSError as error:
            raise InputError(
                f"cannot write to the store {self.folder} ({error.strerror}); give a writable folder with --store"
            ) from None
        self._cells = diskcache.Cache(
            str(self.folder / "cells"),
            disk=JsonDisk,
            size_limit=_NO_LIMIT,
            eviction_policy="none",
            disk_min_file_size=2**20,
        )

    def get(self, key: str) -> Json | None:
        """The cell under `key`, None if it is not there."""
        found = self._cells.get(key)
        return found if isinstance(found, dict) else None

    def put(self, key: str, cell: Json) -> None:
        """Keep a cell; it is on disk when this returns, and wholly or not at all after a kill."""
        self._cells.set(key, cell)

    def keys(self) -> list[str]:
        """Keys of all cells."""
        return list(self._cells.iterkeys())

    def __len__(self) -> int:
        return len(self._cells)

    def load_arrays(self, key: str) -> dict[str, npt.NDArray[Any]] | None:
        """Named arrays under `key`, None if they are not there."""
        from safetensors.numpy import load_file

        path = self._array_path(key)
        return load_file(path) if path.exists() else None

    def save_arrays(self, key: str, arrays: dict[str, npt.NDArray[Any]], metadata: dict[str, str]) -> None:
        """Keep named arrays, atomically."""
        from safetensors.numpy import save

        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        write_atomic(self._array_path(key), save(contiguous, metadata=metadata))

    def results_dir(self, model_id: str) -> Path:
        """Default folder for the tables of one model."""
        name = Path(model_id).resolve().name if Path(model_id).is_dir() else model_id
        slug = re.sub(r"[^A-Za-z0-9._-]+", "--", name).strip("-.") or "model"
        return self.folder / "results" / slug

    def close(self) -> None:
        self._cells.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _array_path(self, key: str) -> Path:
        return self.folder / "arrays" / f"{key}.safetensors"
