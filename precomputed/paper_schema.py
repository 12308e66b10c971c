"""What the tables of the paper's published numbers hold: columns, types, units, source tables.

`paper/schema.toml` is the one description that conversion, loader, README and tests share; this reads it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

import polars as pl

from precomputed import paper_dir

PAPER = "Faithfulness to Refusal: A Causal Audit of Neuron Selectors (Eswar, Seth, Avaiya, Sankarapu)"

_TYPES = {"text": pl.String(), "float": pl.Float64(), "int": pl.Int64(), "bool": pl.Boolean()}


@dataclass(frozen=True)
class Column:
    """A column: its type in the file, its unit ("" for names and texts) and its meaning."""

    name: str
    dtype: pl.DataType
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table: what it is, the labels of the paper's tables it comes from, its columns in order, its rows."""

    name: str
    title: str
    sources: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: int


def _read() -> dict[str, Table]:
    schema = tomllib.loads((paper_dir() / "schema.toml").read_text("utf-8"))
    columns = {
        name: Column(name, _TYPES[entry["type"]], entry["unit"], entry["meaning"])
        for name, entry in schema["columns"].items()
    }
    return {
        name: Table(
            name=name,
            title=entry["title"],
            sources=tuple(entry["sources"]),
            columns=tuple(columns[column] for column in entry["columns"]),
            rows=entry["rows"],
        )
        for name, entry in schema["tables"].items()
    }


TABLES: dict[str, Table] = _read()
