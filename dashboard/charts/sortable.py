"""Tables that are sorted by their numbers and read as texts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from dashboard.charts import formats

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
    return Sortable(
        texts.with_columns(numbers.get_column(name) for name in numbers.columns), texts.select(numbers.columns)
    )


def perplexities(nll: pl.Expr) -> pl.Expr:
    """Perplexities to sort by: exp(NLL), infinite where a float64 cannot hold it, null where there is none."""
    known = pl.when(nll.is_not_nan()).then(nll)
    return pl.when(known < _LARGEST_NLL).then(known.exp()).otherwise(pl.when(known.is_not_null()).then(math.inf))


def perplexity_texts(nll: pl.Series) -> pl.Series:
    """The same for people; `–` where there is none."""
    return formats.texts(nll, formats.perplexity).fill_null("–")
