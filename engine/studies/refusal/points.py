"""`operating_points`: one row per selector and domain, grown stage by stage: chosen, measured, controlled."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
import polars as pl

from engine.data.corpora import Pair
from engine.edits.contrasts import Contrast
from engine.edits.control_edits import global_random, layer_matched
from engine.edits.edit import UNEDITED, Edit
from engine.measures.nll import perplexity
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.results.folders import read_table
from engine.results.tables import frame
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Cell, Results
from engine.stats.uncertainty import Interval, student_t, wilson_of_rate
from engine.studies.base import Answer, Expected, Study, Tables, TextTable
from engine.studies.refusal.grid import UNFINISHED, Grid, OverGrids, Points
from engine.studies.refusal.mask_outputs import kept_masks, of_point
from engine.studies.refusal.operating_point import CONTROL_SEEDS, CONTROLLED, POINTS, OperatingPoint, point_key
from engine.studies.refusal.refusal_inputs import Rate, Rates, RefusalInputs

LAYER_MATCHED, GLOBAL = "layer_matched", "global_random"


@dataclass(frozen=True)
class Control:
    """One random mask of the size of a real one, measured."""

    kind: str
    seed: int
    rates: Rates
    nll: float


def control_edits(run: RefusalInputs, edit: Edit) -> Iterator[tuple[str, int, Edit]]:
    """Random masks with the count of `edit` in every layer, and in all: one of each kind per seed of the plan.
    The paper, section 5.3, has the layer-matched ones; rows of the real mask may be drawn again."""
    rows = run.loaded.rows
    for seed in run.plan.control_seeds:
        yield LAYER_MATCHED, seed, run.edit(layer_matched(edit.units, rows, seed))
        yield GLOBAL, seed, run.edit(global_random(edit.units, rows.n_rows, seed))


def measured_controls(run: RefusalInputs, results: Results, edit: Edit, pairs: Sequence[Pair]) -> list[Control]:
    return [
        Control(kind, seed, run.rates(results, drawn, pairs), results[run.nll(drawn)].nats_per_token)
        for kind, seed, drawn in control_edits(run, edit)
    ]


def control_lines(model: str, point: OperatingPoint, controls: Sequence[Control]) -> Iterator[tuple[object, ...]]:
    keys = (model, point.selector, point.domain, point.lam, point.k, point.rows_removed)
    for one in controls:
        malign, benign = one.rates.malign, one.rates.benign
        numbers = (malign.mean, malign.n, benign.mean, benign.n, one.nll, perplexity(one.nll))
        yield (*keys, one.kind, one.seed, *numbers, malign.unfinished, benign.unfinished)


def gain(real: Rate, controls: Sequence[Rate]) -> tuple[float, Interval]:
    """Refusal under the real mask minus the mean over its controls, with a 95% interval.

    Square-and-add of intervals (Newcombe 1998, method 10; MOVER), which does not collapse where a rate is 0 or 1.
    Two sources of chance: the prompts, by Wilson's intervals of the real rate and of the mean control rate, each
    on n prompts (all controls share them, so they count once); and which control masks were drawn, by Student's t
    interval of their mean, half-width h = t * sd / sqrt(controls):

        low  = gain - sqrt((p - p_low)^2 + (c_high - c)^2 + h^2)
        high = gain + sqrt((p_high - p)^2 + (c - c_low)^2 + h^2), both cut to [-1, 1]

    A single control shows no spread (h = 0). Rates on one set of prompts agree more than independent ones, so the
    interval is rather too wide (**choice**; the paper prints none). It takes no account of the search behind the real
    mask: selectors of pure noise have it above 0 in 12 to 46% of simulated trials, the more cells in the grid
    (`precomputed.null_simulation`), so that it is no evidence of specificity."""
    if not controls or any(one.n != real.n for one in controls):
        raise InputError(f"a gain needs controls on the same {real.n} prompts, got {[one.n for one in controls]}")
    rates = [one.mean for one in controls]
    mean = sum(rates) / len(rates)
    difference = real.mean - mean
    spread = wilson_of_rate(mean, real.n)
    half = student_t(len(rates) - 1) * stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else 0.0
    own = real.interval
    low = difference - math.hypot(real.mean - own.low, spread.high - mean, half)
    high = difference + math.hypot(own.high - real.mean, mean - spread.low, half)
    return difference, Interval(max(-1.0, low), min(1.0, high))


def edits(
    run: RefusalInputs, contrasts: Sequence[Contrast], points: Points
) -> Iterator[tuple[str, str, OperatingPoint | None, Edit]]:
    """(selector, domain, its operating point, its edit); without a point the edit is empty."""
    for contrast in contrasts:
        key = (contrast.selector, contrast.domain)
        if key in points:
            point = points[key]
            edit = UNEDITED if point is None else run.refusal_edit(contrast, point.lam, point.k)
            yield *key, point, edit


def masks_of_points(run: RefusalInputs, contrasts: Sequence[Contrast], points: Points, table: str) -> list[Edit]:
    """The edit of every point, for its mask file. table: that of the points."""
    found = edits(run, contrasts, points)
    return [of_point(run, edit, point, table) for _, _, point, edit in found if point is not None]


class Chosen(OverGrids):
    """What was chosen in the grid: `operating_points`, the sweep behind it, and one mask per point."""

    masks_of, replayed = POINTS, True

    def __init__(self, run: RefusalInputs) -> None:
        self.grid = Grid(run, run.contrasts, run.calibration)

    def cells(self, run: RefusalInputs, known: Results) -> Iterable[Cell[Any]]:
        yield from self.grid.cells(run, known)
        points = self.grid.points(run, known)
        if points is not None:
            yield from self.of_points(run, points)

    @classmethod
    def remade_with(cls, folder: Path, stems: Sequence[str]) -> dict[str, type[Study[RefusalInputs]]]:
        columns = read_table(folder, POINTS).columns if POINTS in stems else []
        if "control_malign" in columns:
            return {"control": Controlled}
        return {"evaluate": Measured} if "edited_malign" in columns else {}

    def at_most(self, run: RefusalInputs, known: Results) -> Expected:
        """The grid, if no cell of it is above the perplexity cap. A wider grid comes on top."""
        edits = {(domain, UNEDITED): None for domain in run.calibration}
        edits |= {(place.domain, place.edit): None for place in self.grid.places}
        both = ((run.nll(edit), run.on_pairs(edit, run.calibration[domain])) for domain, edit in edits)
        return Expected([cell for cells in both for cell in cells], more=True)

    def of_points(self, run: RefusalInputs, points: Points) -> Iterable[Cell[Any]]:
        """The cells that are wanted of the points."""
        return ()

    def points(self, run: RefusalInputs, results: Results) -> Points:
        return self.grid.final_points(run, results)

    def masks(self, run: RefusalInputs, results: Results) -> list[Edit]:
        return masks_of_points(run, run.contrasts, self.points(run, results), self.masks_of)

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        return self.grid.tables(run, results) | {POINTS: self.chosen(run, results)}

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        points, cells = tables[POINTS], tables["refusal_sweep"]
        with_point = points.filter(pl.col("k").is_not_null())
        return (
            f"{cells.height} cells, {cells['feasible'].sum()} within the limits; operating points: "
            f"{with_point.height} of {points.height}, {with_point['rescue'].sum()} by rescue"
        )

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        points = self.points(run, results)
        edges = self.grid.edges(run, results, points)
        masks = kept_masks(folder, POINTS)
        record = [
            {"selector": place[0], "domain": place[1], "point": asdict(point) if point else None,
             "edge": edges.get(place), "mask": masks.get(place)} for place, point in points.items()
        ]  # fmt: skip
        table = TextTable(
            "operating points, by the rates on the calibration pairs (before > after)",
            ("selector", "domain", "lambda", "k", "malign", "benign", "neighbours' malign"),
            [_chosen_row(*place, point) for place, point in points.items()],
            2,
        )
        told = (
            f"{place[0]} {place[1]}: {note}"
            for place, point in points.items()
            if (note := _chosen_note(point, edges.get(place, "none")))
        )
        again = measured_again_lines(tables["refusal_sweep"], run.plan)
        hint = "next: refusal control and refusal evaluate, with the options of this command"
        return Answer((table, *told, *again, hint), {POINTS: record})

    def chosen(self, run: RefusalInputs, results: Results) -> pl.DataFrame:
        """A row per selector and domain, as far as the stage measures it; null where no cell will do. edge: at which
        edges of its grid a point lies."""
        points, rows = self.points(run, results), []
        edges = self.grid.edges(run, results, points)
        for selector, domain, point, edit in edits(run, run.contrasts, points):
            row = point_key(run.loaded.id, selector, domain, point) | _chosen_columns(run, results, point)
            row |= {"edge": edges.get((selector, domain))}
            rows.append(row | self.measured(run, results, domain, point, edit))
        return _frame(rows)

    def measured(
        self, run: RefusalInputs, results: Results, domain: str, point: OperatingPoint | None, edit: Edit
    ) -> dict[str, object]:
        """Further columns of a point."""
        return {}


class Swept(Chosen):
    """The grid alone: `refusal_sweep`."""

    masks_of, replayed = "", False

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        return self.grid.tables(run, results)

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        table = tables["refusal_sweep"]
        generated = table["malign"].is_not_null().sum()
        return f"{table.height} cells, {generated} with replies, {table['feasible'].sum()} feasible"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        table = tables["refusal_sweep"]
        sides = (("malign", "malign_n", "malign_unfinished"), ("benign", "benign_n", "benign_unfinished"))
        again, cut = measured_again_lines(table, run.plan), cut_off_lines(table, *sides)
        return Answer((f"{self.line(run, tables)}; next: refusal select", *again, *cut), dict(tables))


class Measured(Chosen):
    """The points on the held-out pairs, before and after."""

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        return f"{tables[POINTS].height} points measured"

    def of_points(self, run: RefusalInputs, points: Points) -> Iterable[Cell[Any]]:
        for _, domain, _, edit in edits(run, run.contrasts, points):
            for one in (UNEDITED, edit):
                yield run.nll(one)
                yield run.on_pairs(one, run.heldout[domain])

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        return {POINTS: self.chosen(run, results)}

    def measured(
        self, run: RefusalInputs, results: Results, domain: str, point: OperatingPoint | None, edit: Edit
    ) -> dict[str, object]:
        """Refusal on the held-out pairs before and after every edit, with Wilson's 95% intervals, and NLL.
        heldout: False where the source has no other pairs than those that the point was chosen on. optimism:
        calibration minus held-out malign refusal of the edit, null without held-out pairs."""
        pairs = run.heldout[domain]
        row: dict[str, object] = {"pairs": len(pairs), "heldout": run.measures_heldout}
        for name, one in (("unedited", UNEDITED), ("edited", edit)):
            nll = {f"{name}_nll": results[run.nll(one)].nats_per_token}
            columns = run.rates(results, one, pairs).columns(name) | nll
            row |= columns if name == "unedited" or point else dict.fromkeys(columns)
        row["optimism"] = None
        if point and run.measures_heldout:
            row["optimism"] = point.malign - run.rates(results, edit, pairs).malign.mean
        return row


class Controlled(Measured):
    """The points beside random masks of their size: `refusal_controls`, and the gains."""

    def at_most(self, run: RefusalInputs, known: Results) -> Expected:
        """Beside the grid, each point and its controls; a selector may have no point."""
        edits = 1 + 2 * len(run.plan.control_seeds)
        nll, heldout = run.nll(UNEDITED).measure, [run.heldout[contrast.domain] for contrast in run.contrasts]
        measures = [measure for pairs in heldout for measure in (nll, run.on_pairs(UNEDITED, pairs).measure.base)]
        return super().at_most(run, known)._replace(edits=[(measure, edits) for measure in measures])

    def of_points(self, run: RefusalInputs, points: Points) -> Iterable[Cell[Any]]:
        yield from super().of_points(run, points)
        for _, domain, point, edit in edits(run, run.contrasts, points):
            for _, _, drawn in control_edits(run, edit) if point else ():
                yield run.nll(drawn)
                yield run.on_pairs(drawn, run.heldout[domain])

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        lines: list[tuple[object, ...]] = []
        for _, domain, point, edit in edits(run, run.contrasts, self.points(run, results)):
            if point is not None:
                controls = measured_controls(run, results, edit, run.heldout[domain])
                lines += control_lines(run.loaded.id, point, controls)
        return super().tables(run, results) | {"refusal_controls": frame("refusal_controls", lines, UNFINISHED)}

    def measured(
        self, run: RefusalInputs, results: Results, domain: str, point: OperatingPoint | None, edit: Edit
    ) -> dict[str, object]:
        """`control_*`: of the layer-matched masks, mean and max over seeds; `global_*`: of those drawn over the whole
        model. gain, global_gain: real minus the mean of the controls, with 95% intervals (see `gain`)."""
        row = super().measured(run, results, domain, point, edit) | dict.fromkeys(CONTROLLED)
        if point is not None:
            pairs = run.heldout[domain]
            controls, real = measured_controls(run, results, edit, pairs), run.rates(results, edit, pairs)
            for kind, prefix in ((LAYER_MATCHED, "control"), (GLOBAL, "global")):
                row |= _control_columns(prefix, real, [one for one in controls if one.kind == kind])
        return row

    def record(self, run: RefusalInputs) -> Json:
        return {CONTROL_SEEDS: list(run.plan.control_seeds)}

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        return f"{tables['refusal_controls'].height} random masks measured"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        table = TextTable(
            "malign refusal: edited, mean of the controls, gain (95% interval)",
            ("selector", "domain", "edited", "same layers", "whole model", "gain"),
            [_gain_row(row) for row in tables[POINTS].iter_rows(named=True)],
        )
        hint = (
            "The controls were not searched as the edit was: this is the paper's figure and no test; next: refusal "
            "draws"
        )
        return Answer((table, hint), {"gains": tables[POINTS], "controls": tables["refusal_controls"]})


def _chosen_columns(run: RefusalInputs, results: Results, point: OperatingPoint | None) -> dict[str, object]:
    """What was chosen and by which rates (`calibration_*`), and the cells around it. neighbours: measured cells one
    step away in lambda or k; neighbour_malign: their mean. perplexity_factor: of the edited to the unedited model."""
    names = (
        "rescue", "benign_cap", "calibration_unedited_malign", "calibration_malign", "calibration_benign", "neighbours",
        "neighbour_malign", "perplexity_factor",
    )  # fmt: skip
    if point is None:
        return {**dict.fromkeys(names), "rescue": False}
    rates = (point.benign_cap, point.unedited_malign, point.malign, point.benign)
    around = (sum(one.malign is not None for one in point.neighbours), point.neighbour_malign)
    factor = float(np.exp(point.nll - results[run.nll(UNEDITED)].nats_per_token))
    return dict(zip(names, (point.rescue, *rates, *around, factor), strict=True))


def _chosen_row(selector: str, domain: str, point: OperatingPoint | None) -> tuple[str, ...]:
    if point is None:
        return (selector, domain, *["-"] * 5)
    malign = f"{point.unedited_malign:.2f} > {point.malign:.2f}"
    benign = f"{point.unedited_benign:.2f} > {point.benign:.2f}"
    around = " ".join("-" if one.malign is None else f"{one.malign:.2f}" for one in point.neighbours)
    return selector, domain, f"{point.lam:g}", f"{point.k:g}", malign, benign, around or "none"


def _chosen_note(point: OperatingPoint | None, edge: str) -> str:
    if point is None:
        return "no cell is within the limits"
    rescue = f"rescue, benign <= {point.benign_cap:g}" if point.rescue else ""
    return "; ".join(filter(None, (rescue, f"at the {edge} of the grid" if edge != "none" else "")))


def _gain_row(row: dict[str, Any]) -> tuple[str, ...]:
    if row["gain"] is None:
        return row["selector"], row["domain"], "no operating point", "", "", ""
    gain = f"{row['gain']:+.2f} ({row['gain_low']:+.2f} to {row['gain_high']:+.2f})"
    rates = (row["edited_malign"], row["control_malign"], row["global_malign"])
    return row["selector"], row["domain"], *(f"{rate:.2f}" for rate in rates), gain


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
    types = {"neighbours": pl.Int64, "rows_removed": pl.Int64, "edge": pl.String}
    return table.with_columns(
        pl.col(name).cast(types.get(name, pl.Float64)) for name, kind in table.schema.items() if kind == pl.Null
    )


def cut_off_lines(table: pl.DataFrame, *sides: tuple[str, str, str]) -> Iterator[str]:
    """How many replies behind the rates ended at the limit of tokens. sides: columns of a rate, its n, its cut-off."""
    sums = [table.filter(pl.col(rate).is_not_null()).select(pl.col(n, cut).sum()).row(0) for rate, n, cut in sides]
    replies, cut_off = (sum(column) for column in zip(*sums, strict=True))
    if cut_off:
        yield (
            f"{cut_off:,} of {replies:,} replies were cut off at the token limit or within their thinking part, and "
            "judged by what they say until then, if anything; --reply-tokens allows longer ones"
        )


def measured_again_lines(table: pl.DataFrame, plan: RefusalPlan) -> Iterator[str]:
    """How many cells were measured again with longer replies, since cut-off ones left a choice open."""
    if "reply_tokens_used" not in table.columns:
        return
    used = table["reply_tokens_used"].drop_nulls().to_list()
    longer = [tokens for tokens in used if tokens > plan.reply_tokens]
    if longer:
        yield (
            f"{len(longer):,} of {len(used):,} cells were measured again with up to {max(longer):,} tokens per reply, "
            f"since those cut off at {plan.reply_tokens:,} left open whether a cell is feasible or which one is chosen"
        )
