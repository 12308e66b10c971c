"""`operating_points`: one row per selector and domain, grown stage by stage: chosen, measured, controlled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from engine.data.window_starts import without_starts
from engine.edits.contrasts import Contrast
from engine.edits.edit import UNEDITED, Edit
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.manifest import read_manifest
from engine.results.folders import read_table
from engine.results.tables import frame
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.studies.base import Tables
from engine.studies.refusal import specificity
from engine.studies.refusal.grid import UNFINISHED, Grid, Points
from engine.studies.refusal.inputs import Rates, RefusalInputs
from engine.studies.refusal.mask_outputs import of_point
from engine.studies.refusal.operating_point import OperatingPoint

POINTS = "operating_points"
KEY = ["model", "selector", "domain", "lambda", "k", "rows_removed"]


def edits(
    run: RefusalInputs, contrasts: Sequence[Contrast], points: Points
) -> Iterator[tuple[str, str, OperatingPoint | None, Edit]]:
    """(selector, domain, its operating point, its edit); without a point the edit is empty."""
    for contrast in contrasts:
        place = (contrast.selector, contrast.domain)
        if place in points:
            point = points[place]
            edit = UNEDITED if point is None else run.refusal_edit(contrast, point.lam, point.k)
            yield *place, point, edit


class Chosen:
    """What was chosen in the grid: `operating_points`, the sweep behind it, and one mask per point."""

    masks_of = POINTS

    def __init__(self, run: RefusalInputs) -> None:
        self.grid = Grid(run, run.contrasts, run.calibration)

    def cells(self, run: RefusalInputs, known: Results) -> Iterable[Cell[Any]]:
        yield from self.grid.cells(run, known)
        points = self.grid.points(run, known)
        if points is not None:
            yield from self.of_points(run, points)

    def of_points(self, run: RefusalInputs, points: Points) -> Iterable[Cell[Any]]:
        """The cells that are wanted of the points."""
        return ()

    def points(self, run: RefusalInputs, results: Results) -> Points:
        points = self.grid.points(run, results)
        assert points is not None
        return points

    def masks(self, run: RefusalInputs, results: Results) -> list[Edit]:
        """The edit of every point."""
        found = edits(run, run.contrasts, self.points(run, results))
        return [of_point(run, edit, point, self.masks_of) for _, _, point, edit in found if point is not None]

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        points = self.points(run, results)
        return self.grid.tables(run, results) | {POINTS: self.chosen(run, results, points)}

    def chosen(self, run: RefusalInputs, results: Results, points: Points) -> pl.DataFrame:
        """What was chosen, and where in its grid."""
        return chosen_table(run, results, points, self.grid.edges(run, results, points))


class Measured(Chosen):
    """The points on the held-out pairs, before and after."""

    def of_points(self, run: RefusalInputs, points: Points) -> Iterable[Cell[Any]]:
        for _, domain, _, edit in edits(run, run.contrasts, points):
            for one in (UNEDITED, edit):
                yield run.nll(one)
                yield run.on_pairs(one, run.heldout[domain])

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        points = self.points(run, results)
        measured = measured_table(run, results, run.contrasts, points)
        return {POINTS: joined(self.chosen(run, results, points), measured)}


class Controlled(Measured):
    """The points beside random masks of their size: `refusal_controls`, and the gains."""

    def of_points(self, run: RefusalInputs, points: Points) -> Iterable[Cell[Any]]:
        yield from super().of_points(run, points)
        for _, domain, point, edit in edits(run, run.contrasts, points):
            for _, _, drawn in specificity.control_edits(run, edit) if point else ():
                yield run.nll(drawn)
                yield run.on_pairs(drawn, run.heldout[domain])

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        tables = super().tables(run, results)
        points = self.points(run, results)
        controlled, controls = controlled_table(run, results, run.contrasts, points)
        return {POINTS: joined(tables[POINTS], controlled), "refusal_controls": controls}


def chosen_table(
    run: RefusalInputs, results: Results, points: Points, edges: Mapping[tuple[str, str], str]
) -> pl.DataFrame:
    """What was chosen and by which rates (`calibration_*`), and the cells around it. Null where no cell will do.

    neighbours: measured cells one step away in lambda or k; neighbour_malign: their mean. perplexity_factor: of
    the edited to the unedited model. edge: at which edges of its grid a point lies (`edges`).
    """
    dense = results[run.nll(UNEDITED)].nats_per_token
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
        row |= {"edge": edges.get((selector, domain))}
        rows.append(row)
    return _frame(rows)


def measured_table(run: RefusalInputs, results: Results, contrasts: Sequence[Contrast], points: Points) -> pl.DataFrame:
    """Refusal on the held-out pairs before and after every edit, with Wilson's 95% intervals, and NLL.

    heldout: False where the source has no other pairs than those that the point was chosen on. optimism: calibration
    minus held-out malign refusal of the edit, null without held-out pairs.
    """
    rows: list[dict[str, object]] = []
    for selector, domain, point, edit in edits(run, contrasts, points):
        pairs = run.heldout[domain]
        row = _key(run, selector, domain, point) | {"pairs": len(pairs), "heldout": run.measures_heldout}
        for name, one in (("unedited", UNEDITED), ("edited", edit)):
            found = _rate_columns(name, run.rates(results, one, pairs), results[run.nll(one)].nats_per_token)
            row |= found if name == "unedited" or point else dict.fromkeys(found)
        row["optimism"] = None
        if point and run.measures_heldout:
            row["optimism"] = point.malign - run.rates(results, edit, pairs).malign.mean
        rows.append(row)
    return _frame(rows)


def controlled_table(
    run: RefusalInputs, results: Results, contrasts: Sequence[Contrast], points: Points
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(columns for `operating_points`, `refusal_controls`): layer-matched and global random masks, and the gain.

    `control_*`: of the layer-matched masks, mean and max over seeds; `global_*`: of those drawn over the whole
    model. gain, global_gain: real minus the mean of the controls, with 95% intervals (see `specificity.gain`).
    """
    rows: list[dict[str, object]] = []
    lines: list[tuple[object, ...]] = []
    for selector, domain, point, edit in edits(run, contrasts, points):
        row = _key(run, selector, domain, point) | dict.fromkeys(_CONTROLLED)
        if point is not None:
            pairs = run.heldout[domain]
            controls = specificity.measured_controls(run, results, edit, pairs)
            lines += specificity.control_lines(run.loaded.id, point, controls)
            real = run.rates(results, edit, pairs)
            for kind, prefix in ((specificity.LAYER_MATCHED, "control"), (specificity.GLOBAL, "global")):
                row |= _control_columns(prefix, real, [one for one in controls if one.kind == kind])
        rows.append(row)
    return _frame(rows), frame("refusal_controls", lines, optional=UNFINISHED)


def joined(first: pl.DataFrame, *more: pl.DataFrame) -> pl.DataFrame:
    """Stages of the same points side by side."""
    for table in more:
        first = first.join(table, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    return first


def with_earlier(folder: Path, spec: Json, table: pl.DataFrame) -> tuple[pl.DataFrame, Json]:
    """`table` with the columns that earlier stages left in the folder, for points that are still the same.

    Kept only where they were measured as this run measures (`spec`): same prompts, text, replies, judge and limits.
    returns also the entries that the manifest's spec needs for the columns that were kept
    """
    try:
        earlier = read_table(folder, POINTS)
        kept_spec: Json = read_manifest(folder)["files"][f"{POINTS}.parquet"].get("spec", {})
    except InputError:
        return table, {}
    own = {name: value for name, value in kept_spec.items() if name != _SEEDS}
    if without_starts(own) != without_starts(spec) or not set(KEY) <= set(earlier.columns):
        return table, {}
    kept = earlier.drop([name for name in table.columns if name not in KEY], strict=False)
    controlled = set(_CONTROLLED) & set(kept.columns)
    return joined(table, kept), {_SEEDS: kept_spec[_SEEDS]} if controlled and _SEEDS in kept_spec else {}


_SEEDS = "control_seeds"
_CHOSEN = (
    "benign_cap", "calibration_unedited_malign", "calibration_malign", "calibration_benign", "neighbours",
    "neighbour_malign", "perplexity_factor",
)  # fmt: skip
_CONTROLLED = tuple(
    f"{prefix}{column}"
    for kind in ("control", "global")
    for prefix, column in (
        *((f"{kind}_", name) for name in ("malign", "malign_max", "benign", "nll")),
        *(("" if kind == "control" else f"{kind}_", name) for name in ("gain", "gain_low", "gain_high")),
    )
)


def _key(run: RefusalInputs, selector: str, domain: str, point: OperatingPoint | None) -> dict[str, object]:
    cell = (point.lam, point.k, point.rows_removed) if point else (None, None, None)
    return dict(zip(KEY, (run.loaded.id, selector, domain, *cell), strict=True))


def _rate_columns(name: str, rates: Rates, nll: float) -> dict[str, object]:
    columns: dict[str, object] = {}
    for kind, rate in (("malign", rates.malign), ("benign", rates.benign)):
        low, high = rate.interval
        columns |= {f"{name}_{kind}": rate.mean, f"{name}_{kind}_low": low, f"{name}_{kind}_high": high}
    return columns | {f"{name}_nll": nll}


def _control_columns(prefix: str, real: Rates, controls: Sequence[specificity.Control]) -> dict[str, object]:
    malign = [one.rates.malign.mean for one in controls]
    value, (low, high) = specificity.gain(real.malign, [one.rates.malign for one in controls])
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
    types = {"neighbours": pl.Int64, "rows_removed": pl.Int64, "edge": pl.String}
    return table.with_columns(
        pl.col(name).cast(types.get(name, pl.Float64)) for name, kind in table.schema.items() if kind == pl.Null
    )
