"""Scores of a results folder: the row index, and one selector's scores with their checksum verified."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.state import results
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.results.folders import verified_entry

SCORES = "scores.safetensors"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # shown as markdown in labels


def read_rows(folder: Path) -> pl.DataFrame:
    """The row index: row_id, block, sublayer, projection, row."""
    return results.read_table(folder, results.ROWS).frame


def selectors_in(folder: Path) -> list[str]:
    """The selectors that a folder has scores of. Errors: InputError for a file that cannot be read, and for names that
    are not plain."""
    return list(_selectors_in(folder / SCORES, results.stamp(folder / SCORES)))


@lru_cache(maxsize=8)
def _selectors_in(path: Path, _file_stamp: object) -> tuple[str, ...]:
    from safetensors import SafetensorError, safe_open

    again = f"run `{results.remake(path.parent, results.ROWS)}` again"
    try:
        bounds.tensors(path)
        with safe_open(path, framework="numpy") as tensors:
            names = [str(name) for name in list(tensors.keys())]
    except (SafetensorError, bounds.BadFile, OSError) as error:
        raise InputError(f"{path} is not readable ({error}); {again}") from None
    odd = [name for name in names if not _ID.fullmatch(name)]
    if odd or not names:
        raise InputError(f"{path} holds no scores under names of letters, digits and . _ - only; {again}")
    return tuple(names)


def read_scores(folder: Path, selector: str) -> npt.NDArray[np.float32]:
    """Scores of one selector [N], of a seeded one those of its first seed; the manifest's checksum fits.
    Arrays are shared between callers. Errors: `InputError` for a missing or damaged file, an unknown selector."""
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
        bounds.tensors(path)
        with safe_open(path, framework="numpy") as tensors:
            if selector not in set(tensors.keys()):
                raise InputError(f"{path} holds no scores of {selector}; choose another selector")
            scores: npt.NDArray[np.float32] = tensors.get_tensor(selector)
    except (SafetensorError, bounds.BadFile, OSError) as error:
        raise InputError(f"{path} is not readable ({error}); run `{again}` again") from None
    scores = scores if scores.ndim == 1 else scores[0]
    scores.flags.writeable = False
    return scores


@lru_cache(maxsize=16)  # all selectors of one run at once, as the Rows page needs them
def _checked_once(path: Path, again: str, _file_stamp: object, _manifest_stamp: object) -> None:
    """Scores may be large: their checksum is computed once for all selectors."""
    verified_entry(path, again)


def scores_for(folder: Path, selector: str, weights_hash: str, n_rows: int) -> npt.NDArray[np.float32]:
    """`read_scores` for a model in memory. `InputError` where they are of other weights, or of other rows."""
    scores = read_scores(folder, selector)
    made_for = str(dict(read_manifest(folder).get("model") or {}).get("weights_hash"))
    if made_for != weights_hash or scores.size != n_rows:
        raise InputError(
            f"{folder} has scores of {scores.size} rows of weights {made_for[:12]}, the model has {n_rows} rows and "
            f"weights {weights_hash[:12]}; run `selector-audit score` on this model"
        )
    return scores
