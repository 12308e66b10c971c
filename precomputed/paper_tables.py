"""The paper's published numbers as polars frames. Needs polars only: the dashboard's first page reads them."""

from __future__ import annotations

from functools import cache

import polars as pl

from engine.records.errors import unknown
from precomputed import paper_dir
from precomputed.paper_schema import TABLES, Table


def table_names() -> list[str]:
    """Names of the published tables, the sweep first, then in the order of the README beside them."""
    return list(TABLES)


def describe(name: str) -> Table:
    """Title, sources, row count and columns (type, unit, meaning) of a table. `InputError` for a wrong name."""
    if name not in TABLES:
        raise unknown("paper table", name, TABLES)
    return TABLES[name]


@cache
def load_table(name: str) -> pl.DataFrame:
    """A published table, read once per process. `InputError` for a wrong name.

    Frames are shared between callers: derive new ones, never assign into them.
    """
    return pl.read_parquet(paper_dir() / f"{describe(name).name}.parquet")
