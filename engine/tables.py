"""Tables of a results folder, read back only if they are the bytes that their manifest names."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from engine.errors import InputError
from engine.records import file_sha256, read_manifest


def table_names(folder: Path) -> list[str]:
    """Stems of the parquet tables that the folder's manifest lists, sorted."""
    return sorted(
        Path(name).stem for name in read_manifest(folder).get("files", {}) if name.endswith(".parquet")
    )


def read_table(folder: Path, stem: str) -> pl.DataFrame:
    """`STEM.parquet` of a results folder. Errors: InputError where it is missing, changed or unreadable."""
    path = folder / f"{stem}.parquet"
    entry = read_manifest(folder).get("files", {}).get(path.name)
    if entry is None or not path.is_file():
        raise InputError(
            f"{folder} holds no {path.name}; run `selector-audit analyze MODEL --out {folder}` first"
        )
    if entry.get("sha256") != file_sha256(path):
        raise InputError(
            f"{path} does not fit the checksum in its manifest.json (damaged, or changed by hand); delete it and run "
            "the same command again, finished cells are kept in the store"
        )
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path} is not readable parquet ({str(error).splitlines()[0]})") from None
