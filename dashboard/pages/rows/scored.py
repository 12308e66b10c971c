"""Scores of a results folder as the Rows page reads them: ranks, values per block and projection, rows of one cell."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.charts import palette
from dashboard.state import results, scores as stored
from dashboard.state.results import while_unchanged
from dashboard.state.scores import SCORES
from engine.edits.masks import Mask, removed_rows
from engine.records.errors import InputError
from engine.records.manifest import MANIFEST, read_manifest
from engine.results.folders import verified_entry
from engine.stats.removal_order import rank

MATRIX = ("block", "projection")


@dataclass(frozen=True)
class Layers:
    """Weight matrices. frame: block, projection, rows, sublayer of each, in the order of the row index. of_row
    [N]: the line that a row belongs to."""

    frame: pl.DataFrame
    of_row: npt.NDArray[np.int64]

    def means(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Mean of every matrix's values, in float64. [N] -> [matrices]"""
        sums = np.bincount(self.of_row, weights=values, minlength=self.frame.height)
        return np.asarray(sums / self.frame["rows"].to_numpy(), dtype=np.float64)


@while_unchanged(8, lambda folder: (folder / f"{results.ROWS}.parquet",))
def layers(folder: Path) -> Layers:
    """The matrices of a model of any size; made once per folder, since names of millions of rows are slow to group by.
    Errors: `InputError` for a missing or damaged table."""
    rows = stored.read_rows(folder).select(*MATRIX, "sublayer")
    runs = rows.select(pl.struct(MATRIX).rle_id()).to_series().to_numpy()  # of neighbours alike
    firsts = rows[np.unique(runs, return_index=True)[1]].with_columns(rows=np.bincount(runs))
    frame = firsts.group_by(MATRIX, maintain_order=True).agg(pl.sum("rows").cast(pl.Int64), pl.first("sublayer"))
    numbered = frame.with_row_index("place")
    placed = firsts.join(numbered, on=MATRIX, how="left", nulls_equal=True, maintain_order="left")
    return Layers(frame, placed["place"].to_numpy()[runs].astype(np.int64))


@dataclass(frozen=True)
class Scored:
    """A folder with `scores.safetensors`. model: its entry in the manifest. rows: the row index.
    load_from: id or folder of the model whose rows these are."""

    folder: Path
    model: dict[str, Any]
    rows: pl.DataFrame
    selectors: list[str]
    provenance: str
    load_from: str

    @property
    def matrices(self) -> Layers:
        """Columns block, projection, rows, and which of them a row belongs to."""
        return layers(self.folder)

    @property
    def n_rows(self) -> int:
        return self.rows.height

    @property
    def blocks(self) -> list[int]:
        return self.matrices.frame["block"].unique(maintain_order=True).to_list()

    @property
    def projections(self) -> list[str]:
        return self.matrices.frame["projection"].unique(maintain_order=True).to_list()

    def scores(self, selector: str) -> npt.NDArray[np.float32]:
        """[N]; of random those of its first seed."""
        return stored.read_scores(self.folder, selector)

    def ranks(self, selector: str) -> npt.NDArray[np.int32]:
        """Place of every row under LeRF, 0 = removed first. [N]"""
        return _ranks(self.folder, selector)

    def percentiles(self, selector: str) -> npt.NDArray[np.float64]:
        """100 * rank / (N - 1): 0 = the least important row of the model, 100 = the most important. [N]"""
        return 100 * self.ranks(selector).astype(np.float64) / max(self.n_rows - 1, 1)

    @property
    def cells(self) -> list[tuple[int, str]]:
        """Block and projection of every cell, in the order of the row index."""
        frame = self.matrices.frame
        return [(int(block), str(projection)) for block, projection in frame.select(MATRIX).iter_rows()]

    def removed(self, selector: str, order: str, rate: float) -> Mask:
        """`removed_rows` of a selector's scores. Shared between callers."""
        return _removed(self.folder, selector, order, rate)


def _scores_file(folder: Path, *_: object) -> tuple[Path]:
    return (folder / SCORES,)


@while_unchanged(4, _scores_file)
def _removed(folder: Path, selector: str, order: str, rate: float) -> Mask:
    rows = removed_rows(stored.read_scores(folder, selector), order, rate)
    rows.flags.writeable = False
    return rows


@while_unchanged(16, _scores_file)
def _ranks(folder: Path, selector: str) -> npt.NDArray[np.int32]:
    return rank(stored.read_scores(folder, selector)).astype(np.int32)


def find(folder: Path) -> list[Path]:
    """Folders with scores, `folder` itself or up to three levels below, by name; `InputError` if there is none."""
    runs = {path.parent for path in results.below(folder, SCORES, "selector-audit score MODEL")}
    if not runs:
        raise InputError(f"{folder} holds no scores; run `selector-audit score MODEL --out {folder}` first")
    return sorted(runs)


@while_unchanged(4, lambda folder: (folder / name for name in (SCORES, "rows.parquet", MANIFEST)))
def read(folder: Path) -> Scored:
    """The scores of a folder; `InputError` where they, the row index or the manifest are missing or damaged."""
    path, command = folder / SCORES, results.remake(folder, results.ROWS)
    again = f"run `{command}`"
    if not path.is_file():
        raise InputError(f"{folder} holds no {SCORES}; {again} first")
    rows = stored.read_rows(folder)
    selectors = palette.in_order(stored.selectors_in(folder))
    entry = verified_entry(path, command)
    manifest = read_manifest(folder)
    for name in selectors:
        scores = stored.read_scores(folder, name)
        if scores.size != rows.height:
            raise InputError(
                f"{path} has {scores.size} scores of {name}, rows.parquet lists {rows.height} rows; {again} again"
            )
    model = dict(manifest.get("model") or {})
    results.learn_titles(entry)
    return Scored(folder, model, rows, selectors, results.describe_run(manifest, entry), str(model.get("id", "")))


def mean_scores(scored: Scored, selector: str) -> pl.DataFrame:
    """Mean score of every cell. Columns block, projection, rows, value."""
    values = scored.scores(selector).astype(np.float64)
    return scored.matrices.frame.with_columns(value=scored.matrices.means(values))


def mask_shares(scored: Scored, selector: str, order: str, rate: float) -> pl.DataFrame:
    """Share of every cell's rows that the mask removes, in [0, 1]. Columns block, projection, rows, value, removed."""
    inside, frame = scored.matrices.of_row[scored.removed(selector, order, rate)], scored.matrices.frame
    removed = pl.Series("removed", np.bincount(inside, minlength=frame.height).astype(np.int64))
    return frame.with_columns(value=removed / frame["rows"]).with_columns(removed)


def rank_differences(scored: Scored, selector: str, other: str) -> pl.DataFrame:
    """Mean percentile under `selector` minus that under `other`, in points from -100 to 100.
    Columns block, projection, rows, value, apart (mean absolute difference over the cell's rows)."""
    difference, means = scored.percentiles(selector) - scored.percentiles(other), scored.matrices.means
    return scored.matrices.frame.with_columns(value=means(difference), apart=means(np.abs(difference)))


def cell_rows(scored: Scored, block: int, projection: str) -> pl.DataFrame:
    """Rows of one cell: row_id, row, then per selector `NAME score`, `NAME rank`, `NAME percentile`.
    Rank 0 and percentile 0 are the least important row of the model."""
    cells = scored.matrices.frame.with_row_index("place").filter(block=block, projection=projection)
    ids = np.flatnonzero(scored.matrices.of_row == (cells["place"][0] if cells.height else -1))
    columns = []
    for name in scored.selectors:
        columns += [
            pl.Series(f"{name} score", scored.scores(name)[ids]), pl.Series(f"{name} rank", scored.ranks(name)[ids]),
            pl.Series(f"{name} percentile", scored.percentiles(name)[ids]),
        ]  # fmt: skip
    return scored.rows[ids].select("row_id", "row").with_columns(columns)
