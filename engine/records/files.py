"""Files that hold their old bytes or their new ones, never a part."""

from __future__ import annotations

import io
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine.records.leftovers import sweep, temporary

if TYPE_CHECKING:
    import polars as pl


def write_atomic(path: Path, content: bytes) -> None:
    """Write so that `path` holds the old bytes or the new ones, never a part: a temporary name, fsync, replace.

    What a killed process left of an earlier try is removed first. Errors: OSError, with `path` as its `filename`.
    """
    sweep(path)
    unfinished = temporary(path)
    try:
        with unfinished.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None  # not the name on the way
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def write_parquet(path: Path, table: pl.DataFrame) -> None:
    """A tidy table, atomically; equal tables give equal bytes."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd", statistics=True)
    write_atomic(path, buffer.getvalue())


def same_bytes(content: bytes) -> bytes:
    """A safetensors file with its metadata in the order of their names: the library's order changes from call to
    call, and equal numbers are to give equal bytes.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + text.ljust(end - 8) + content[end:]
