"""The table `operating_points` in its folder, which keeps what earlier stages measured of the same points."""

from pathlib import Path

import polars as pl

from engine.data.window_starts import without_starts
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.manifest import read_manifest
from engine.results.folders import read_table

POINTS = "operating_points"
KEY = ["model", "selector", "domain", "lambda", "k", "rows_removed"]
CONTROL_SEEDS, HELDOUT_RECORD = "control_seeds", "heldout"  # entries of the manifest
CONTROLLED = tuple(
    f"{prefix}{column}"
    for kind in ("control", "global")
    for prefix, column in (
        *((f"{kind}_", name) for name in ("malign", "malign_max", "benign", "nll")),
        *(("" if kind == "control" else f"{kind}_", name) for name in ("gain", "gain_low", "gain_high")),
    )
)


def joined(first: pl.DataFrame, *more: pl.DataFrame) -> pl.DataFrame:
    """Stages of the same points side by side."""
    for table in more:
        first = first.join(table, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    return first


def with_earlier(folder: Path, spec: Json, table: pl.DataFrame) -> tuple[pl.DataFrame, Json]:
    """`table` with the columns that earlier stages left in the folder, for points that are still the same.

    Kept only where they were measured as this run measures (`spec`): same prompts, text, replies, judge and limits. A
    stage that measures no held-out pairs has no record of them in `spec`, and keeps what was measured on any.
    returns also the entries that the manifest's spec needs for the columns that were kept"""
    try:
        earlier = read_table(folder, POINTS)
        kept_spec: Json = read_manifest(folder)["files"][f"{POINTS}.parquet"].get("spec", {})
    except InputError:
        return table, {}
    own = {name: value for name, value in kept_spec.items() if name != CONTROL_SEEDS}
    heldout = own.pop(HELDOUT_RECORD, None) if HELDOUT_RECORD not in spec else None
    if without_starts(own) != without_starts(spec) or not set(KEY) <= set(earlier.columns):
        return table, {}
    kept = earlier.drop([name for name in table.columns if name not in KEY], strict=False)
    controlled = set(CONTROLLED) & set(kept.columns)
    entries = {CONTROL_SEEDS: kept_spec[CONTROL_SEEDS]} if controlled and CONTROL_SEEDS in kept_spec else {}
    return joined(table, kept), entries | ({HELDOUT_RECORD: heldout} if heldout is not None else {})
