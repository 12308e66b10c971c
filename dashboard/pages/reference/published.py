"""The published tables as Reference shows them: what they are, measured values beside them, disagreements."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.series import ORDER_TITLES
from dashboard.charts.sortable import Sortable, sortable
from dashboard.state import results, shipped_models as shipped
from engine.records.errors import InputError
from engine.records.manifest import MANIFEST, read_manifest
from engine.records.model_names import model_name
from engine.studies.comparison import KEYS, Comparison, compare, noise_sentences, paper_model, summary
from precomputed.paper_tables import describe, load_table, table_names

POINTS = "inconsistencies"
SEVERITIES = ("high", "medium", "low", "note")
KINDS = {
    "table": "two tables", "claim": "text against a table", "text": "text against itself",
    "public": "public configurations", "note": "worth knowing",
}  # fmt: skip
SHIPPED = "Shipped model"
OF_NOISE = ("log_ratio", "stderr", "z", "p_holm")
_ABOUT = ("printed", "half_unit", "table", "at_ceiling", "primary", "model_printed")  # of a cell, no part of the table
_WORDS = {
    "ppl": "perplexity", "rate": "removed", "lambda": "λ", "pct": "%", "n": "number of", "lerf": "LeRF", "morf": "MoRF",
    "calib": "calibration", "ci": "95% interval,", "orbench": "OR-Bench", "sorrybench": "SorryBench", "mmlu": "MMLU",
    "gsm8k": "GSM8K", "ifeval": "IFEval",
}  # fmt: skip
_SELECTORS = ("selector", "selector_a", "selector_b", "control")


def tables() -> list[str]:
    """Names of the published tables; the points of disagreement are no table of the paper."""
    return [name for name in table_names() if name != POINTS]


def caption(name: str) -> str:
    """What a table holds, in our words, and where it comes from."""
    table = describe(name)
    labels = ", ".join(source.removeprefix("tab:") for source in table.sources)
    where = f"From the paper's {labels}" if labels else "Made from all tables"
    return f"{table.title}. {where}; {table.rows:,} rows."


def points(kinds: Collection[str], severities: Collection[str], table: str | None = None) -> pl.DataFrame:
    """Disagreements of these kinds and severities; table: only those about one of our tables. Worst first."""
    found = load_table(POINTS).filter(pl.col("kind").is_in(list(kinds)), pl.col("severity").is_in(list(severities)))
    if table is not None:
        labels = pl.col("tables").str.split(",").list.eval(pl.element().str.strip_chars())
        found = found.filter(labels.list.set_intersection(list(describe(table).sources)).list.len() > 0)
    return found.sort(pl.col("severity").cast(pl.Enum(SEVERITIES)), "id", maintain_order=True)


def tables_of(labels: str) -> list[str]:
    """Our tables that come from the named tables of the paper, at most one for each label."""
    named = [label.strip() for label in labels.split(",") if label.strip() != "text"]
    holding = ([name for name in tables() if label in describe(name).sources] for label in named)
    return list(dict.fromkeys(names[0] for names in holding if names))


def runs() -> dict[str, Path]:
    """Results folders that can stand beside the published values: the shipped model's, then those of the store."""
    folders = shipped.folders()
    with suppress(InputError):  # an empty store has nothing to offer
        top = results.store_results_dir()
        folders |= {str(run.relative_to(top.parent)): run for run in results.find_runs(top)}
    return folders


@dataclass(frozen=True)
class Beside:
    """A run beside the published values. `model`: the run's own name; `comparison`: None where nothing matches."""

    model: str
    comparison: Comparison | None


def beside(folder: Path, stands_for: str | None = None) -> Beside:
    """The comparison with the paper's model that the run is of, or stands for. `InputError` for a bad folder."""
    model = model_name(read_manifest(folder).get("model") or {"id": "unknown"})
    if stands_for is None and paper_model(model) is None:
        return Beside(model, None)
    return Beside(model, _compare(folder, stands_for))


@results.while_unchanged(8, lambda folder, stands_for: (*sorted(folder.glob("*.parquet")), folder / MANIFEST))
def _compare(folder: Path, stands_for: str | None) -> Comparison:
    return compare(folder, stands_for)


def cells_of(comparison: Comparison, table: str) -> pl.DataFrame:
    """Published and measured values of one table, worst first, without the columns that say nothing there."""
    cells = comparison.cells.filter(table=table)
    keys, noise = ([name for name in names if cells[name].null_count() < cells.height] for names in (KEYS, OF_NOISE))
    return cells.select(*keys, "published", "measured", "difference", "within", *noise)


def in_words(comparison: Comparison, table: str | None = None) -> str:
    """What the standard errors say of the cells, of one table or all; nothing without a cell."""
    cells = comparison.cells if table is None else comparison.cells.filter(table=table)
    return " ".join(noise_sentences(cells))


def counts(comparison: Comparison) -> pl.DataFrame:
    """Per quantity: cells compared, within half a printed unit, tested against noise, beyond it, median relative
    difference, cells not measured."""
    schema = {"quantity": pl.String, "not measured": pl.Int64}
    missing = pl.DataFrame(list(comparison.missing.items()), schema, orient="row")
    return summary(comparison).join(missing, on="quantity", how="full", coalesce=True).sort("quantity")


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
