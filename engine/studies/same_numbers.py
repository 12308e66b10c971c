"""Does a table that was made again hold the numbers of the stored one?"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.results.tables import TableSpec

TOLERANCE = 1e-3
RULE = (
    "a number holds if it differs by at most the tolerance times (its size + the median size in its column), of "
    "shares, probabilities and correlations by at most the tolerance, of counts of a mask's rows in a part of the "
    "model by at most the tolerance times the mask's rows; other counts, ids and flags hold if they are equal, texts "
    "if they are equal but for the numerals in them"
)
_BOUNDED = ("share", "signed")  # ranges of columns whose scale is 1
_NUMERAL = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
_STORED, _AGAIN = "_stored", "_again"  # columns of the join: number of the line in each table


@dataclass(frozen=True)
class Difference:
    """One value that does not hold. apart: how far, in tolerances' own unit; infinite for what is no number."""

    column: str
    line: str  # "selector=lrp, rate=0.3"
    stored: Any
    again: Any
    apart: float


@dataclass(frozen=True)
class Held:
    """What became of one table.

    lines: those that both have; values: how many were compared. furthest: the largest distance of all numbers.
    differences: the values that do not hold, furthest first. lost, gained: lines that only the stored table has, and
    that only the new one has. columns_lost: those that were not written again."""

    table: str
    lines: int
    values: int
    furthest: float
    differences: tuple[Difference, ...]
    lost: int = 0
    gained: int = 0
    columns_lost: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not (self.differences or self.lost or self.gained or self.columns_lost)


def apart(stored: npt.ArrayLike, again: npt.ArrayLike, *, bounded: bool = False) -> npt.NDArray[np.float64]:
    """|again - stored| / (|stored| + m), m the median of all finite |stored|; for bounded numbers |again - stored|.
    0 where both are the same infinity or both NaN, infinite where only one is finite. Same shape as the arguments."""
    old, new = (np.asarray(values, dtype=np.float64) for values in (stored, again))
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    sizes = np.abs(old[np.isfinite(old)])
    scale = np.ones_like(old) if bounded else np.abs(old) + (np.median(sizes) if sizes.size else 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.abs(new - old) / scale
    return np.where(same, 0.0, np.where(np.isfinite(relative), relative, np.inf))


def same_numbers(
    name: str, stored: pl.DataFrame, again: pl.DataFrame, about: TableSpec | None, tolerance: float = TOLERANCE
) -> Held:
    """Every value of `stored` beside that of `again`, by `RULE`. The model's name is no number of the table.
    about: the table's description; its keys find the line that belongs to a line. Without one, or where keys name
    several lines, the order of the lines does. Columns that only `again` has are newer than the stored table."""
    stored, again = (table.drop("model", strict=False) for table in (stored, again))
    lost_columns = tuple(one for one in stored.columns if one not in again.columns)
    keys = [one for one in (about.keys if about else ()) if one in stored.columns and one in again.columns]
    pairs = _pairs(stored, again, keys)
    both = pairs.drop_nulls()
    old, new = stored[both[_STORED].to_list()], again[both[_AGAIN].to_list()]
    differences: list[Difference] = []
    furthest, values = 0.0, 0
    for column in stored.columns:
        if column in keys or column in lost_columns:
            continue
        described = about.column(column) if about else None
        if described and described.spread:
            distance = _of_masks(old, new, column, described.spread.split())
        else:
            distance = _distances(old[column], new[column], bounded=bool(described and described.range in _BOUNDED))
        values += len(distance)
        if old[column].dtype.is_float() and len(distance):
            furthest = max(furthest, float(distance.max()))
        for place in np.flatnonzero(distance > tolerance).tolist():
            line = ", ".join(f"{key}={_word(old[key][place])}" for key in keys) or f"line {place + 1}"
            differences.append(Difference(column, line, old[column][place], new[column][place], float(distance[place])))
    ordered = tuple(sorted(differences, key=lambda one: -one.apart))
    lost, gained = (pairs[side].null_count() for side in (_AGAIN, _STORED))
    return Held(name, both.height, values, furthest, ordered, lost, gained, lost_columns)


def same_arrays(
    name: str, stored: dict[str, npt.NDArray[Any]], again: dict[str, npt.NDArray[Any]], tolerance: float = TOLERANCE
) -> Held:
    """The same of named arrays, one column each; an array of another shape counts as a lost and a gained line."""
    differences: list[Difference] = []
    furthest, values, reshaped, lines = 0.0, 0, 0, 0
    for column in stored.keys() & again.keys():
        old, new = stored[column], again[column]
        if old.shape != new.shape:
            reshaped += 1
            continue
        distance = apart(old, new)
        values, lines = values + old.size, max(lines, old.shape[-1] if old.ndim else 1)
        furthest = max(furthest, float(distance.max(initial=0.0)))
        worst = sorted(np.argwhere(distance > tolerance).tolist(), key=lambda place: -distance[tuple(place)])
        for place in map(tuple, worst):
            line = f"row_id={place[-1]}" + (f", number {place[0] + 1}" if len(place) > 1 else "")
            differences.append(Difference(column, line, float(old[place]), float(new[place]), float(distance[place])))
    lost = tuple(sorted(stored.keys() - again.keys()))
    ordered = tuple(sorted(differences, key=lambda one: -one.apart))
    return Held(name, lines, values, furthest, ordered, lost=reshaped, gained=reshaped, columns_lost=lost)


def _pairs(stored: pl.DataFrame, again: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Numbers of the lines that belong together, null where the other table has none."""
    old, new = stored.with_row_index(_STORED), again.with_row_index(_AGAIN)
    if not keys or stored.select(keys).is_duplicated().any() or again.select(keys).is_duplicated().any():
        old, new, keys = old.with_columns(_line=_STORED), new.with_columns(_line=_AGAIN), ["_line"]
    joined = old.select(*keys, _STORED).join(new.select(*keys, _AGAIN), on=list(keys), how="full", nulls_equal=True)
    return joined.select(_STORED, _AGAIN).sort(_STORED, _AGAIN)


def _distances(old: pl.Series, new: pl.Series, *, bounded: bool) -> npt.NDArray[np.float64]:
    """0 for what is equal, infinite for what is not and is no number."""
    if old.dtype.is_float() and new.dtype.is_numeric():
        distances = apart(old.to_numpy(), new.cast(pl.Float64).to_numpy(), bounded=bounded)  # null becomes NaN
        return np.where((old.is_null() != new.is_null()).to_numpy(), np.inf, distances)
    pairs = zip(old.to_list(), new.to_list(), strict=True)
    return np.array([0.0 if _alike(*pair) else math.inf for pair in pairs], dtype=np.float64)


def _of_masks(old: pl.DataFrame, new: pl.DataFrame, column: str, keys: Sequence[str]) -> npt.NDArray[np.float64]:
    """|new - old| as a share of all that the mask has, lines that agree in the keys being one mask's.
    Scores differ by rounding from machine to machine, and then rows at the cut change places."""
    masks = old.select(pl.col(column).sum().over(keys)).to_series()
    moved = (new[column] - old[column]).abs() / masks.clip(lower_bound=1)
    return moved.fill_null(math.inf).to_numpy().astype(np.float64)


def _alike(old: Any, new: Any) -> bool:
    if isinstance(old, str) and isinstance(new, str):
        return old == new or _NUMERAL.sub("#", old) == _NUMERAL.sub("#", new)
    return bool(old == new)


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
