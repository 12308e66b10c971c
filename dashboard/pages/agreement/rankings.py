"""Scores of a results folder as masks: how far the LeRF masks of two selectors overlap, layer by layer."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.state import results
from engine.edits.masks import removed_rows
from engine.records.errors import InputError
from engine.results.folders import verified_entry

SCORES = "scores.safetensors"


def read_rows(folder: Path) -> pl.DataFrame:
    """The row index: row_id, block, sublayer, projection, row."""
    return results.read_table(folder, results.ROWS).frame


def read_scores(folder: Path, selector: str) -> npt.NDArray[np.float32]:
    """Scores of one selector [N], of a seeded one those of its first seed; the manifest's checksum fits.

    Arrays are shared between callers. Errors: `InputError` for a missing or damaged file, an unknown selector.
    """
    path = folder / SCORES
    if not path.is_file():
        raise InputError(f"{folder} holds no {SCORES}; run `{results.remake(folder, results.ROWS)}` first")
    return _read_scores(path, selector, results.stamp(path), results.stamp(folder / "manifest.json"))


@lru_cache(maxsize=16)
def _read_scores(path: Path, selector: str, scores_stamp: object, manifest_stamp: object) -> npt.NDArray[np.float32]:
    from safetensors import SafetensorError, safe_open

    again = results.remake(path.parent, results.ROWS)
    _checked_once(path, again, scores_stamp, manifest_stamp)
    try:
        with safe_open(path, framework="numpy") as tensors:
            if selector not in set(tensors.keys()):
                raise InputError(f"{path} holds no scores of {selector}; choose another selector")
            scores: npt.NDArray[np.float32] = tensors.get_tensor(selector)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not readable ({error}); run `{again}` again") from None
    scores = scores if scores.ndim == 1 else scores[0]
    scores.flags.writeable = False
    return scores


@lru_cache(maxsize=16)  # all selectors of one run at once, as the Rows page needs them
def _checked_once(path: Path, again: str, _file_stamp: object, _manifest_stamp: object) -> None:
    """Scores may be large: their checksum is computed once for all selectors."""
    verified_entry(path, again)


def overlap(folder: Path, first: str, second: str, rate: float) -> pl.DataFrame:
    """Rows of every layer in the LeRF masks of two selectors at one rate.

    Columns: block, sublayer, projection, rows, first, second, both, jaccard (null where no row is in either).
    Errors: `InputError` as of `read_scores`, and where scores and row index do not fit each other.
    """
    stamps = tuple(results.stamp(folder / name) for name in (SCORES, f"{results.ROWS}.parquet"))
    return _overlap(folder, first, second, rate, stamps)


@lru_cache(maxsize=8)
def _overlap(folder: Path, first: str, second: str, rate: float, _stamps: object) -> pl.DataFrame:
    rows = read_rows(folder)
    masked = {}
    for name, selector in (("first", first), ("second", second)):
        scores = read_scores(folder, selector)
        if scores.size != rows.height:
            raise InputError(
                f"{folder / SCORES} has scores of {scores.size:,} rows, rows.parquet lists {rows.height:,}; "
                f"run `{results.remake(folder, results.ROWS)}` again"
            )
        inside = np.zeros(scores.size, dtype=np.bool_)
        inside[removed_rows(scores, "lerf", rate)] = True
        masked[name] = inside
    either = pl.col("first") + pl.col("second") - pl.col("both")
    return (
        rows.with_columns(pl.Series(name, inside) for name, inside in masked.items())
        .with_columns(both=pl.col("first") & pl.col("second"))
        .group_by("block", "sublayer", "projection", maintain_order=True)
        .agg(pl.len().alias("rows"), pl.col("first", "second", "both").sum().cast(pl.Int64))
        .with_columns(jaccard=pl.when(either > 0).then(pl.col("both") / either))
    )
