"""Removal orders and rates to masks: the sorted ids of the rows that are removed."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from engine.models.row_index import RowIndex
from engine.records.errors import InputError
from engine.stats.removal_order import removed_first

Mask = npt.NDArray[np.int64]


def parse_rate(text: str) -> float:
    """A rate as people write it: `0.3` or `30%`, a fraction of all rows in [0, 1]."""
    stripped = text.strip()
    try:
        rate = float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        raise InputError(f"rate must be a number in [0, 1], got {text!r}; write 0.3 or 30%") from None
    if not 0 <= rate <= 1:
        raise InputError(f"rate must be in [0, 1], got {stripped}; write 0.3 or 30%")
    return rate


def removed_count(rate: float, n_rows: int) -> int:
    """Number of rows that a rate removes: `round(rate * N)`, exactly."""
    if not 0 <= rate <= 1:
        raise InputError(f"rate must be in [0, 1], got {rate:g}; write 0.3 or 30%")
    return round(rate * n_rows)


def removed_rows(scores: npt.ArrayLike, order: str, rate: float) -> Mask:
    """The mask of one selector at one rate over the global ranking of all rows. scores [N]
    returns [round(rate * N)] int64, ascending row ids"""
    return removed_first(scores, order, removed_count(rate, np.shape(scores)[0] if np.ndim(scores) else 0))


def checked_mask(mask: npt.ArrayLike, n_rows: int) -> Mask:
    """`mask` as ascending int64 row ids, or an error if it is not a set of rows of this model."""
    rows = np.asarray(mask)
    if rows.size == 0:
        return np.zeros(0, dtype=np.int64)
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
        raise InputError(
            f"a mask is a list of row ids, got {rows.dtype} of shape {list(rows.shape)}; expected whole numbers, as "
            "`selector-audit mask` writes them"
        )
    rows = np.sort(rows.astype(np.int64))
    if rows[0] < 0 or rows[-1] >= n_rows:
        wrong = rows[0] if rows[0] < 0 else rows[-1]
        raise InputError(
            f"row id {wrong} is outside this model's rows 0..{n_rows - 1}; was the mask made for another model?"
        )
    if (np.diff(rows) == 0).any():
        raise InputError(f"row id {rows[:-1][np.diff(rows) == 0][0]} is in the mask twice; each row may be there once")
    return rows


def mask_parts(mask: Mask, rows: RowIndex) -> Iterator[tuple[str, str, npt.NDArray[np.bool_]]]:
    """("projection" or "block", its name or number, which rows of the mask lie there), where some and not all do."""
    layers = rows.layer_of(mask)
    for part, labels in (
        ("projection", np.array([layer.projection for layer in rows.layers])),
        ("block", np.array([str(layer.block) for layer in rows.layers])),
    ):
        for name in dict.fromkeys(labels.tolist()):
            inside = labels[layers] == name
            if inside.any() and not inside.all():
                yield part, name, inside
