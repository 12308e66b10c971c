"""Tables of a refusal experiment in a results folder."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from engine.records import Json, add_to_manifest, check_folder, write_parquet
from engine.refusal.run import RefusalRun


def write_tables(
    folder: Path, run: RefusalRun, tables: dict[str, pl.DataFrame], elapsed_s: float, **more: object
) -> None:
    """`STEM.parquet` and its manifest entry for each table. more: further entries of the manifest's spec."""
    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder, run.loaded.fingerprint)
    spec: Json = run.spec() | more
    for stem, table in tables.items():
        write_parquet(folder / f"{stem}.parquet", table)
        add_to_manifest(folder, run.loaded.fingerprint, f"{stem}.parquet", spec, elapsed_s)
