"""Scores of a results folder as masks: how far the LeRF masks of two selectors overlap, layer by layer."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from dashboard.state import layers, results
from dashboard.state.scores import SCORES, read_scores
from engine.edits.masks import removed_rows
from engine.records.errors import InputError


def overlap(folder: Path, first: str, second: str, rate: float) -> pl.DataFrame:
    """Rows of every layer in the LeRF masks of two selectors at one rate.

    Columns: block, sublayer, projection, rows, first, second, both, jaccard (null where no row is in either).
    Errors: `InputError` as of `read_scores`, and where scores and row index do not fit each other.
    """
    stamps = tuple(results.stamp(folder / name) for name in (SCORES, f"{results.ROWS}.parquet"))
    return _overlap(folder, first, second, rate, stamps)


@lru_cache(maxsize=8)
def _overlap(folder: Path, first: str, second: str, rate: float, _stamps: object) -> pl.DataFrame:
    found = layers.layers(folder, layers.LAYER)
    inside = []
    for selector in (first, second):
        scores = read_scores(folder, selector)
        if scores.size != found.of_row.size:
            raise InputError(
                f"{folder / SCORES} has scores of {scores.size:,} rows, rows.parquet lists {found.of_row.size:,}; "
                f"run `{results.remake(folder, results.ROWS)}` again"
            )
        mask = np.zeros(scores.size, dtype=np.bool_)
        mask[removed_rows(scores, "lerf", rate)] = True
        inside.append(mask)
    either = pl.col("first") + pl.col("second") - pl.col("both")
    return found.frame.with_columns(
        pl.Series(name, found.counts(mask))
        for name, mask in (("first", inside[0]), ("second", inside[1]), ("both", inside[0] & inside[1]))
    ).with_columns(jaccard=pl.when(either > 0).then(pl.col("both") / either))
