"""Tables of a results folder: written through the gate, read back only if they are the bytes the manifest names."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import FileKind, make_folder, tensors_metadata, write_parquet
from engine.records.hashing import Json, file_sha256
from engine.records.manifest import add_to_manifest, check_folder, is_listed, read_manifest
from engine.records.model_names import model_name
from engine.results.tables import TABLES, checked, command

# A panic of polars is none of its errors, and not even an `Exception`.
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, TypeError)


def _is_table(path: Path) -> bool:
    """Is it listed in the manifest or, where a process was killed before that, a table of this stem by its columns?"""
    if is_listed(path):
        return True
    try:
        columns = pl.scan_parquet(path, glob=False).collect_schema()  # a folder may be called [a]
    except (*UNREADABLE, OSError):
        return False
    if path.stem not in TABLES:
        return mark_of(path) == path.stem
    about = TABLES.get(path.stem)
    return columns.keys() >= about.schema().keys() and all(about.column(name) for name in columns)


def marked(what: str) -> dict[str, str]:
    """Metadata that tells what wrote a table, where its columns do not."""
    return {"selector-audit": what}


def mark_of(path: Path) -> str | None:
    """What `marked` was given; None where the file holds nothing of it."""
    try:
        return pl.read_parquet_metadata(path).get("selector-audit")
    except (*UNREADABLE, OSError):
        return None


TABLE = FileKind("a table", _is_table)
SCORES = FileKind(
    "a file of scores", lambda path: is_listed(path) or {"model", "spec"} <= tensors_metadata(path).keys()
)


class MissingTable(InputError):
    """A results folder lacks a table. folder, stem: which."""

    def __init__(self, message: str, folder: Path, stem: str) -> None:
        super().__init__(message)
        self.folder, self.stem = folder, stem


def write_tables(
    folder: Path, tables: Mapping[str, pl.DataFrame], model_fingerprint: Json, spec: Json, elapsed_s: float
) -> None:
    """`STEM.parquet` and its manifest entry for each table, atomically; all are checked before the first is written.
    A table that is not registered is written as it is. spec: what the tables were made from, kept in the manifest.
    Errors: InputError for a table that is not what its name says, and for a folder of another model."""
    named = {stem: with_model_name(table, model_fingerprint) for stem, table in tables.items()}
    right = {stem: checked(stem, table, f"table {stem}") if stem in TABLES else table for stem, table in named.items()}
    make_folder(folder)
    check_folder(folder, model_fingerprint)
    for stem, table in right.items():
        write_parquet(folder / f"{stem}.parquet", table, TABLE, None if stem in TABLES else marked(stem))
        add_to_manifest(folder, model_fingerprint, f"{stem}.parquet", spec, elapsed_s)


def table_names(folder: Path) -> list[str]:
    """Stems of the parquet tables that the folder's manifest lists, sorted."""
    return sorted(Path(name).stem for name in read_manifest(folder).get("files", {}) if name.endswith(".parquet"))


def read_table(folder: Path, stem: str) -> pl.DataFrame:
    """`STEM.parquet` of a results folder: the bytes that the manifest names, through the gate where it is registered.

    Errors: MissingTable where it is not there, InputError where it is changed, unreadable, or not what its name says.
    """
    path, again = folder / f"{stem}.parquet", remake(folder, stem)
    if not path.is_file():
        raise MissingTable(f"{folder} holds no {path.name}; run `{again}` first", folder, stem)
    verified_entry(path, again)
    try:
        table = bounds.parquet(path)
    except (*UNREADABLE, OSError) as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{path} is not readable parquet ({first_line}); run `{again}` again") from None
    table = with_model_name(table, read_manifest(folder).get("model") or {})
    return checked(stem, table, str(path), published=is_published(folder)) if stem in TABLES else table


def with_model_name(table: pl.DataFrame, model: Json) -> pl.DataFrame:
    """The table with `model_name` where it has the model's id; earlier versions wrote a local model's whole path."""
    given, name = model.get("id"), model_name(model)
    if given == name or table.schema.get("model") != pl.String:
        return table
    return table.with_columns(pl.when(pl.col("model") == given).then(pl.lit(name)).otherwise("model").alias("model"))


def is_published(folder: Path) -> bool:
    """Does the folder hold values that somebody published, not measured ones?"""
    return "published" in read_manifest(folder)


def remake(folder: Path, stem: str) -> str:
    """The command that writes the table here, with the model's name where the manifest tells it."""
    try:
        model = read_manifest(folder).get("model", {}).get("id")
    except InputError:
        model = None
    return f"{command(stem, str(model or 'MODEL'))} --out {folder}"


def verified_entry(path: Path, again: str) -> Json:
    """The manifest's entry of a file whose checksum fits; an InputError that names the command `again` otherwise."""
    entry = read_manifest(path.parent).get("files", {}).get(path.name, {})
    if entry.get("sha256") != file_sha256(path):
        raise InputError(
            f"{path} does not fit the checksum in its manifest.json (damaged, or changed by hand); run `{again}` "
            "again, finished cells are kept in the store"
        )
    return dict(entry)
