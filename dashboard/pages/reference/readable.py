"""A published table to be read: the characters that the paper printed, selectors side by side, names for people."""

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
    as it is stored has all columns."""
    stored = load_table(name)
    keys = [one for one in stored.columns if one not in _ABOUT]
    if not {"printed", "half_unit"} <= set(stored.columns):
        return _short(stored.select(keys), stored, keys, [])
    # The printed number is the last one of numbers before its characters.
    before = stored.columns[: stored.columns.index("printed")]
    value = next(name for name in reversed(before) if stored[name].dtype == pl.Float64)
    keys.remove(value)
    across = next((one for one in ("selector_b", "selector") if one in keys), "")
    wide = [one for one in keys if one != across]
    cells = stored.unique([*keys, "printed"], keep="first", maintain_order=True)
    # Side by side only where that puts no two printed numbers into one cell.
    if not across or not wide or stored[across].n_unique() < 2 or cells.select(keys).is_duplicated().any():
        texts = stored.select(*keys, pl.col("printed").alias(value))
        return _short(texts.select(name for name in stored.columns if name in texts.columns), stored, keys, [value])
    order = palette.in_order(cells[across].unique().to_list())
    numbers, texts = (
        cells.pivot(on=across, index=wide, values=one, aggregate_function="first").select(*wide, *order)
        for one in (value, "printed")
    )
    titles = {name: _title(name) for name in order}
    return _short(texts.rename(titles), numbers.rename(titles), wide, list(titles.values()))


def _short(texts: pl.DataFrame, numbers: pl.DataFrame, keys: list[str], values: list[str]) -> Sortable:
    """Names for people, without keys that are the same in every row. numbers: what `values`, rates and k sort by."""
    for name in keys:
        if name in _SELECTORS:
            texts = texts.with_columns(formats.texts(texts[name], _title).alias(name))
        elif name == "order":
            texts = texts.with_columns(pl.col(name).replace(ORDER_TITLES))
        elif name in ("rate", "k"):
            texts = texts.with_columns(formats.texts(texts[name], formats.rate).alias(name))
    same = [name for name in keys if texts.height > 1 and texts[name].n_unique() == 1]
    names = {name: _heading(name) for name in keys if name not in same}
    behind = numbers.select(*(name for name in ("rate", "k") if name in names), *values)
    return sortable(texts.drop(same).rename(names), behind.rename({old: names.get(old, old) for old in behind.columns}))


def _title(selector: str) -> str:
    """`dense`, in some tables, is the unmasked model."""
    known = selector in palette.STYLES
    return "Unmasked" if selector == "dense" else palette.title(selector) if known else _heading(selector)


def _heading(name: str) -> str:
    text = " ".join(_WORDS.get(word, word) for word in name.split("_"))
    return text[:1].upper() + text[1:] if len(text) > 1 and text[:1].islower() else text  # λ and k stay small
