"""`operating_points`: one row per selector and domain, grown stage by stage: chosen, measured, controlled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from engine.errors import InputError
from engine.masks import Mask
from engine.records import Json, read_manifest
from engine.refusal.contrast import Contrast, refusal_mask
from engine.refusal.operating_point import OperatingPoint
from engine.refusal.run import UNEDITED, Rates, RefusalRun
from engine.refusal.specificity import (
    GLOBAL,
    LAYER_MATCHED,
    SCHEMA as CONTROL_SCHEMA,
    Control,
    control_table,
    gain,
    measure_controls,
)
from engine.tables import read_table

POINTS = "operating_points"
KEY = ["model", "selector", "domain", "lambda", "k", "rows_removed"]
Points = Mapping[tuple[str, str], OperatingPoint | None]


def masks(
    contrasts: Sequence[Contrast], points: Points
) -> Iterator[tuple[tuple[str, str], OperatingPoint | None, Mask]]:
    """(selector, domain), its operating point and its mask; without a point the mask is empty."""
    for contrast in contrasts:
        place = (contrast.selector, contrast.domain)
        if place in points:
            point = points[place]
            yield place, point, UNEDITED if point is None else refusal_mask(contrast, point.lam, point.k)


def chosen_table(run: RefusalRun, points: Points) -> pl.DataFrame:
    """What was chosen and by which rates (`calibration_*`), and the cells around it. Null where no cell will do.

    neighbours: measured cells one step away in lambda or k; neighbour_malign: their mean. perplexity_factor: of
    the edited to the unedited model.
    """
    dense = run.nll(UNEDITED).nats_per_token
    rows = []
    for (selector, domain), point in points.items():
        row = _key(run, selector, domain, point)
        if point is None:
            row |= {"rescue": False} | dict.fromkeys(_CHOSEN)
        else:
            measured = sum(one.malign is not None for one in point.neighbours)
            values = (
                point.benign_cap,
                point.unedited_malign,
                point.malign,
                point.benign,
                measured,
                point.neighbour_malign,
                float(np.exp(point.nll - dense)),
            )
            row |= {"rescue": point.rescue} | dict(zip(_CHOSEN, values, strict=True))
        rows.append(row)
    return _frame(rows)


def measured_table(run: RefusalRun, contrasts: Sequence[Contrast], points: Points) -> pl.DataFrame:
    """Refusal on the held-out pairs before and after every edit, with Wilson's 95% intervals, and NLL.

    heldout: False where the source has no other pairs than those that the point was chosen on.
    """
    rows: list[dict[str, object]] = []
    for (selector, domain), point, mask in masks(contrasts, points):
        run.report("before and after", len(rows), len(points))
        pairs = run.heldout[domain]
        row = _key(run, selector, domain, point) | {"pairs": len(pairs), "heldout": run.measures_heldout}
        row |= _rate_columns("unedited", run.rates(UNEDITED, pairs), run.nll(UNEDITED).nats_per_token)
        edited = _rate_columns("edited", run.rates(mask, pairs), run.nll(mask).nats_per_token)
        rows.append(row | (edited if point else dict.fromkeys(edited)))
    run.report("before and after", len(rows), len(points))
    return _frame(rows)


def controlled_table(
    run: RefusalRun, contrasts: Sequence[Contrast], points: Points
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(columns for `operating_points`, `refusal_controls`): layer-matched and global random masks, and the gain.

    `control_*`: of the layer-matched masks, mean and max over seeds; `global_*`: of those drawn over the whole
    model. gain, global_gain: real minus the mean of the controls, with 95% intervals (see `specificity.gain`).
    """
    rows: list[dict[str, object]] = []
    tables: list[pl.DataFrame] = []
    for (selector, domain), point, mask in masks(contrasts, points):
        run.report("controls", len(rows), len(points))
        row = _key(run, selector, domain, point) | dict.fromkeys(_CONTROLLED)
        if point is not None:
            pairs = run.heldout[domain]
            controls = measure_controls(run, mask, pairs)
            tables.append(control_table(run, point, controls))
            real = run.rates(mask, pairs)
            for kind, prefix in ((LAYER_MATCHED, "control"), (GLOBAL, "global")):
                row |= _control_columns(prefix, real, [one for one in controls if one.kind == kind])
        rows.append(row)
    run.report("controls", len(rows), len(points))
    return _frame(rows), pl.concat(tables) if tables else pl.DataFrame(schema=CONTROL_SCHEMA)


def joined(first: pl.DataFrame, *more: pl.DataFrame) -> pl.DataFrame:
    """Stages of the same points side by side."""
    for table in more:
        first = first.join(table, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    return first


def with_earlier(folder: Path, run: RefusalRun, table: pl.DataFrame) -> tuple[pl.DataFrame, Json]:
    """`table` with the columns that earlier stages left in the folder, for points that are still the same.

    Kept only where they were measured as this run measures: same prompts, text, replies, judge and limits.
    returns also the entries that the manifest's spec needs for the columns that were kept
    """
    try:
        earlier = read_table(folder, POINTS)
        spec: Json = read_manifest(folder)["files"][f"{POINTS}.parquet"].get("spec", {})
    except InputError:
        return table, {}
    own = {name: value for name, value in spec.items() if name != _SEEDS}
    if own != run.spec() or not set(KEY) <= set(earlier.columns):
        return table, {}
    kept = earlier.drop([name for name in table.columns if name not in KEY], strict=False)
    controlled = set(_CONTROLLED) & set(kept.columns)
    return joined(table, kept), {_SEEDS: spec[_SEEDS]} if controlled and _SEEDS in spec else {}


_SEEDS = "control_seeds"
_CHOSEN = (
    "benign_cap",
    "calibration_unedited_malign",
    "calibration_malign",
    "calibration_benign",
    "neighbours",
    "neighbour_malign",
    "perplexity_factor",
)
_CONTROLLED = (
    "control_malign", "control_malign_max", "control_benign", "control_nll", "gain", "gain_low", "gain_high",
    "global_malign", "global_malign_max", "global_benign", "global_nll", "global_gain", "global_gain_low",
    "global_gain_high",
)  # fmt: skip


def _key(run: RefusalRun, selector: str, domain: str, point: OperatingPoint | None) -> dict[str, object]:
    cell = (point.lam, point.k, point.rows_removed) if point else (None, None, None)
    return dict(zip(KEY, (run.loaded.id, selector, domain, *cell), strict=True))


def _rate_columns(name: str, rates: Rates, nll: float) -> dict[str, object]:
    columns: dict[str, object] = {}
    for kind, rate in (("malign", rates.malign), ("benign", rates.benign)):
        low, high = rate.interval
        columns |= {f"{name}_{kind}": rate.mean, f"{name}_{kind}_low": low, f"{name}_{kind}_high": high}
    return columns | {f"{name}_nll": nll}


def _control_columns(prefix: str, real: Rates, controls: Sequence[Control]) -> dict[str, object]:
    malign = [one.rates.malign.mean for one in controls]
    value, (low, high) = gain(real.malign, [one.rates.malign for one in controls])
    gained = "gain" if prefix == "control" else f"{prefix}_gain"
    return {
        f"{prefix}_malign": float(np.mean(malign)),
        f"{prefix}_malign_max": max(malign),
        f"{prefix}_benign": float(np.mean([one.rates.benign.mean for one in controls])),
        f"{prefix}_nll": float(np.mean([one.nll for one in controls])),
        gained: value,
        f"{gained}_low": low,
        f"{gained}_high": high,
    }


def _frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Columns that are null throughout get a type too, so that stages and folders can be put together."""
    table = pl.DataFrame(rows, infer_schema_length=None)
    types = {"neighbours": pl.Int64, "rows_removed": pl.Int64}
    return table.with_columns(
        pl.col(name).cast(types.get(name, pl.Float64))
        for name, kind in table.schema.items()
        if kind == pl.Null
    )
