"""Two runs side by side: the cells that both measured, and their difference."""

from __future__ import annotations

import polars as pl

from dashboard.charts import palette
from dashboard.state.results import Curves
from engine.records.errors import InputError

_CELL = ["selector", "order", "rate"]


def shared_cells(first: Curves, second: Curves, models: tuple[str, str]) -> pl.DataFrame:
    """Cells of the sweep that both runs have, seeds averaged in NLL.

    Columns: selector, order, rate, nll_a, nll_b, difference = nll_b - nll_a (nats per token). There is no error
    of the difference: runs do not keep how their errors over windows go together. `InputError` where the
    runs share nothing.
    """
    sides = [
        curves.frame.filter(pl.col("model") == model)
        .with_columns(pl.col("rate").round(6))
        .group_by(_CELL, maintain_order=True)
        .agg(pl.col("nll").mean())
        for curves, model in zip((first, second), models, strict=True)
    ]
    both = sides[0].rename({"nll": "nll_a"}).join(sides[1].rename({"nll": "nll_b"}), on=_CELL)
    if both.is_empty():
        raise InputError("the two runs share no selector, order and rate; choose runs with a sweep in common")
    cells = both.with_columns(difference=pl.col("nll_b") - pl.col("nll_a"))
    places = {name: place for place, name in enumerate(palette.in_order(cells["selector"].to_list()))}
    return cells.sort(
        pl.col("selector").replace_strict(places, return_dtype=pl.Int64), "order", "rate", maintain_order=True
    )


def tables_side_by_side(first: list[str], second: list[str]) -> pl.DataFrame:
    """Table, in the first run, in the second."""
    names = sorted(set(first) | set(second))
    return pl.DataFrame({"table": names, "first": [n in first for n in names], "second": [n in second for n in names]})
