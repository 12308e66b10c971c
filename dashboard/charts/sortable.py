"""Tables that are sorted by their numbers and read as texts."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from dashboard.charts import formats

Row = Mapping[str, Any]
Cell = Callable[[Row], Any]
_LARGEST_NLL = 709.0  # exp of more is no float64


@dataclass(frozen=True)
class Sortable:
    """`numbers`: what a table is sorted by. `texts`: what stands in its cells, for some of the columns of `numbers`."""

    numbers: pl.DataFrame
    texts: pl.DataFrame

    @property
    def shown(self) -> pl.DataFrame:
        """As it reads, where nothing is sorted."""
        return self.numbers.with_columns(self.texts.get_columns())


def sortable(texts: pl.DataFrame, numbers: pl.DataFrame) -> Sortable:
    """`texts` with some of its columns backed by the numbers of the same name. Both have the same rows."""
    return Sortable(texts.with_columns(numbers.get_columns()), texts.select(numbers.columns))


def of_rows(rows: Iterable[Row], columns: Mapping[str, Cell | tuple[Cell, Cell]]) -> Sortable:
    """A line per row. columns: title -> what is read there, or that and the number that the column is sorted by."""
    lines = list(rows)
    both = {title: cell if isinstance(cell, tuple) else (cell, None) for title, cell in columns.items()}
    texts = {title: [text(line) for line in lines] for title, (text, _) in both.items()}
    numbers = {
        title: pl.Series([number(line) for line in lines], dtype=pl.Float64)
        for title, (_, number) in both.items() if number
    }  # fmt: skip
    return sortable(pl.DataFrame(texts, infer_schema_length=None), pl.DataFrame(numbers))


def perplexity(nll: float | None) -> float | None:
    """The number to sort by: exp(NLL), infinite where a float64 cannot hold it, None where there is none."""
    if nll is None or math.isnan(nll):
        return None
    return math.exp(nll) if nll < _LARGEST_NLL else math.inf


def of_perplexity(column: str) -> tuple[Cell, Cell]:
    """A column of perplexities, from the NLLs under this name; `–` where there is none."""
    return lambda row: formats.perplexity(row[column]), lambda row: perplexity(row[column])
