"""Tables of a results folder, read back only if they are the bytes that their manifest names."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from engine.errors import InputError
from engine.records import Json, file_sha256, read_manifest


def table_names(folder: Path) -> list[str]:
    """Stems of the parquet tables that the folder's manifest lists, sorted."""
    return sorted(
        Path(name).stem for name in read_manifest(folder).get("files", {}) if name.endswith(".parquet")
    )


def read_table(folder: Path, stem: str, again: str = "selector-audit analyze MODEL") -> pl.DataFrame:
    """`STEM.parquet` of a results folder; `again` is the command that makes it, for what cannot be read.

    Errors: InputError where it is missing, changed or unreadable.
    """
    path = folder / f"{stem}.parquet"
    if not path.is_file():
        raise InputError(f"{folder} holds no {path.name}; run `{again}` first")
    verified_entry(path, again)
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        first_line = str(error).splitlines()[0]
        raise InputError(f"{path} is not readable parquet ({first_line}); run `{again}` again") from None


def verified_entry(path: Path, again: str) -> Json:
    """The manifest's entry of a file whose checksum fits; an InputError that names the command `again` otherwise."""
    entry = read_manifest(path.parent).get("files", {}).get(path.name, {})
    if entry.get("sha256") != file_sha256(path):
        raise InputError(
            f"{path} does not fit the checksum in its manifest.json (damaged, or changed by hand); run `{again}` "
            "again, finished cells are kept in the store"
        )
    return dict(entry)
