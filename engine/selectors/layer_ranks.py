"""Percentile ranks within a layer: Algorithm 1 compares rows with the other rows of the same Linear."""

import numpy as np
import numpy.typing as npt

from engine.models.row_index import RowIndex
from engine.records.errors import InputError


def percentile_ranks(values: npt.ArrayLike, rows: RowIndex) -> npt.NDArray[np.float64]:
    """r(v): rank within the row's layer (Linear), divided by its rows - 1: 0 lowest, 1 highest. [N] -> [N].

    Equal values share the mean of their ranks (**choice**): rows that never promote complying are many and exactly 0,
    and ranked by row id they would seem to differ. A layer of one row has rank 1/2, as has any layer of equal values.
    """
    scores = np.asarray(values, dtype=np.float64)
    if scores.shape != (rows.n_rows,):
        raise InputError(f"scores have shape {list(scores.shape)}, the model has {rows.n_rows} rows")
    if not np.isfinite(scores).all():
        layer = rows.layers[int(rows.layer_of(int(np.argmin(np.isfinite(scores)))))]
        raise InputError(
            f"non-finite scores in block {layer.block} {layer.projection}; run again with --dtype bfloat16 or float32"
        )
    ranks = np.empty(rows.n_rows)
    for layer in rows.layers:
        part = slice(layer.start, layer.start + layer.rows)
        _, group, counts = np.unique(scores[part], return_inverse=True, return_counts=True)
        mean_rank = np.cumsum(counts) - (counts + 1) / 2  # of each group of equal values, from 0
        ranks[part] = mean_rank[group] / (layer.rows - 1) if layer.rows > 1 else 0.5
    return ranks
