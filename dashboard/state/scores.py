"""Scores of a results folder: the row index, and one selector's scores with their checksum verified."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.state import results
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.manifest import MANIFEST, read_manifest
from engine.results.folders import verified_entry
from engine.results.tables import is_id

SCORES = "scores.safetensors"


def read_rows(folder: Path) -> pl.DataFrame:
    """The row index: row_id, block, sublayer, projection, row."""
    return results.read_table(folder, results.ROWS).frame


@results.while_unchanged(8, lambda folder: (folder / SCORES,))
def selectors_in(folder: Path) -> tuple[str, ...]:
    """The selectors that a folder has scores of. Errors: InputError for a file that cannot be read, and for names that
    are not plain."""
    from safetensors import SafetensorError, safe_open

    path, again = folder / SCORES, f"run `{results.remake(folder, results.ROWS)}` again"
    try:
        bounds.tensors(path)
        with safe_open(path, framework="numpy") as tensors:
            names = [str(name) for name in list(tensors.keys())]
    except (SafetensorError, bounds.BadFile, OSError) as error:
        raise InputError(f"{path} is not readable ({error}); {again}") from None
    odd = [name for name in names if not is_id(name)]
    if odd or not names:
        raise InputError(f"{path} holds no scores under names of letters, digits and . _ - only; {again}")
    return tuple(names)


def _files(folder: Path, *_: str) -> tuple[Path, Path]:
    return folder / SCORES, folder / MANIFEST


@results.while_unchanged(16, _files)  # all selectors of one run at once, as the Rows page needs them
def read_scores(folder: Path, selector: str) -> npt.NDArray[np.float32]:
    """Scores of one selector [N], of a seeded one those of its first seed; the manifest's checksum fits.
    Errors: `InputError` for a missing or damaged file, an unknown selector."""
    from safetensors import SafetensorError, safe_open

    path, again = folder / SCORES, results.remake(folder, results.ROWS)
    if not path.is_file():
        raise InputError(f"{folder} holds no {SCORES}; run `{again}` first")
    _verified(folder, again)
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


@results.while_unchanged(16, _files)
def _verified(folder: Path, again: str) -> None:
    """Scores may be large: their checksum is computed once for all selectors."""
    verified_entry(folder / SCORES, again)


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
