"""Parts of a model of any size: which rows of a results folder lie in which, and sums over them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.state import results

MATRIX = ("block", "projection")


@dataclass(frozen=True)
class Layers:
    """Parts of a model. frame: a line per part, with its `rows`, in the order of the row index. of_row [N]: the line
    that a row belongs to."""

    frame: pl.DataFrame
    of_row: npt.NDArray[np.int64]

    def counts(self, inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """How many rows of every part are in a mask. [N] -> [parts]"""
        return np.bincount(self.of_row[inside], minlength=self.frame.height).astype(np.int64)

    def means(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Mean of every part's values, in float64. [N] -> [parts]"""
        sums = np.bincount(self.of_row, weights=values, minlength=self.frame.height)
        return np.asarray(sums / self.frame["rows"].to_numpy(), dtype=np.float64)


@results.while_unchanged(8, lambda folder, by: (folder / f"{results.ROWS}.parquet",))
def layers(folder: Path, by: tuple[str, ...]) -> Layers:
    """The parts that have one value of the columns `by`; made once per folder, since names of millions of rows are
    slow to group by. Errors: `InputError` for a missing or damaged table."""
    rows = results.read_table(folder, results.ROWS).frame.select(by)
    runs = rows.select(pl.struct(by).rle_id()).to_series().to_numpy()  # of neighbours alike
    firsts = rows[np.unique(runs, return_index=True)[1]].with_columns(rows=np.bincount(runs))
    frame = firsts.group_by(by, maintain_order=True).agg(pl.col("rows").sum().cast(pl.Int64))
    numbered = frame.with_row_index("place")
    placed = firsts.join(numbered, on=by, how="left", nulls_equal=True, maintain_order="left")
    return Layers(frame, placed["place"].to_numpy()[runs].astype(np.int64))
