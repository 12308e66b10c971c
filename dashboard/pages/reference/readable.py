"""A published table to be read: the characters that the paper printed, selectors side by side, names for people."""

from __future__ import annotations

import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.series import ORDER_TITLES
from dashboard.charts.sortable import Sortable, sortable
from precomputed.paper_tables import load_table

_ABOUT = ("printed", "half_unit", "table", "at_ceiling", "primary", "model_printed")  # of a cell, no part of the table
_WORDS = {
    "ppl": "perplexity", "rate": "removed", "lambda": "λ", "pct": "%", "n": "number of", "lerf": "LeRF", "morf": "MoRF",
    "calib": "calibration", "ci": "95% interval,", "orbench": "OR-Bench", "sorrybench": "SorryBench", "mmlu": "MMLU",
    "gsm8k": "GSM8K", "ifeval": "IFEval",
}  # fmt: skip
_SELECTORS = ("selector", "selector_a", "selector_b", "control")


def to_read(name: str) -> Sortable:
    """The table with one column per selector where each of its rows is one printed number, else with all its rows.

    Cells read as printed and sort as numbers. What is the same in every row is left out; nothing else is: the table
    as it is stored has all columns.
    """
    stored = load_table(name)
    across = next((one for one in ("selector_b", "selector") if one in stored.columns), "")
    wide = _wide(stored, across) if {"printed", "half_unit"} <= set(stored.columns) and across else None
    return wide or _long(stored)


def _wide(stored: pl.DataFrame, across: str) -> Sortable | None:
    """Selectors side by side; None where that would put two printed numbers into one cell."""
    value = _value(stored)
    keys = [one for one in stored.columns if one not in (across, value, *_ABOUT)]
    part = stored.unique([*keys, across, "printed"], keep="first", maintain_order=True)
    if not keys or stored[across].n_unique() < 2 or part.select(*keys, across).is_duplicated().any():
        return None
    order = palette.in_order(part[across].unique().to_list())
    numbers, texts = (
        part.pivot(on=across, index=keys, values=values, aggregate_function="first").select(*keys, *order)
        for values in (value, "printed")
    )
    titles = {name: _title(name) for name in order}
    told = _told(texts, keys).rename(titles)
    behind = numbers.select(*_to_sort(numbers, keys), *order).rename(titles)
    return _short(told, behind, keys)


def _value(stored: pl.DataFrame) -> str:
    """The column of the printed number: the last one of numbers before `printed`."""
    before = stored.columns[: stored.columns.index("printed")]
    return next(name for name in reversed(before) if stored[name].dtype == pl.Float64)


def _long(stored: pl.DataFrame) -> Sortable:
    keys = [one for one in stored.columns if one not in _ABOUT]
    shown = stored.select(keys)
    told = _told(shown, keys)
    if {"printed", "half_unit"} <= set(stored.columns):
        value = _value(stored)
        told = told.with_columns(stored["printed"].alias(value))
        return _short(told, shown.select(*_to_sort(shown, keys), value), [one for one in keys if one != value])
    return _short(told, shown.select(_to_sort(shown, keys)), keys)


def _told(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Names for people in the columns that say what a row is about."""
    changed: dict[str, pl.Expr | pl.Series] = {}
    for name in keys:
        if name in _SELECTORS:
            changed[name] = formats.texts(frame[name], _title)
        elif name == "order":
            changed[name] = pl.col(name).replace(ORDER_TITLES)
        elif name in ("rate", "k"):
            changed[name] = formats.texts(frame[name], formats.rate)
    return frame.with_columns(**changed)


def _title(selector: str) -> str:
    """`dense`, in some tables, is the unmasked model."""
    if selector == "dense":
        return "Unmasked"
    return palette.title(selector) if selector in palette.STYLES else _heading(selector)


def _to_sort(frame: pl.DataFrame, keys: list[str]) -> list[str]:
    return [name for name in keys if name in ("rate", "k") and name in frame.columns]


def _short(told: pl.DataFrame, behind: pl.DataFrame, keys: list[str]) -> Sortable:
    """Without the keys that are the same in every row, under names for people."""
    same = [name for name in keys if told.height > 1 and told[name].n_unique() == 1]
    names = {name: _heading(name) for name in keys if name not in same}
    left = {old: new for old, new in names.items() if old in behind.columns}
    return sortable(
        told.drop(same).rename(names), behind.drop(name for name in same if name in behind.columns).rename(left)
    )


def _heading(name: str) -> str:
    words = [_WORDS.get(word, word) for word in name.split("_")]
    text = " ".join(words)
    return text[:1].upper() + text[1:] if text[:1].islower() else text
