"""The shipped tables as lines of plain data, for tests that compute a sentence again."""

import polars as pl

import precomputed
from dashboard.charts import palette
from dashboard.state import results

SHIPPED = precomputed.demo_dir() / "results"


def shipped(stem, rate=None):
    lines = results.read_table(SHIPPED, stem).frame.to_dicts()
    return [row for row in lines if rate is None or abs(row["rate"] - rate) < 1e-9]


def frame(lines):
    return pl.DataFrame(lines, infer_schema_length=None)


def title(name):
    return palette.title(name)
