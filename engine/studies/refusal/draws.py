"""Specificity that noise does not pass: layer-matched draws that are searched, chosen and measured like the edit."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from engine.edits.controls import shuffled
from engine.edits.edit import UNEDITED, Edit
from engine.measures.nll import perplexity
from engine.records.hashing import Json
from engine.results.tables import frame
from engine.run.runner import Cell, Results
from engine.stats.layer_matched import p_value, prediction_interval, rank_among
from engine.stats.uncertainty import holm
from engine.studies.base import Answer, Tables, TextTable
from engine.studies.refusal.grid import UNFINISHED, Grid, OverGrids
from engine.studies.refusal.inputs import DRAW_SEEDS, Rates, RefusalInputs
from engine.studies.refusal.operating_point import OperatingPoint, point_key

LEVEL = 0.05


class Draw(NamedTuple):
    """What the search of one grid gave for one selector and domain: its point, None without one, measured."""

    selector: str
    domain: str
    point: OperatingPoint | None
    edit: Edit
    rates: Rates
    nll: float


class Drawn(OverGrids):
    """`specificity` and `refusal_draws`: the edit's rank among draws with a grid and a selection of their own.

    A draw permutes the rows within every layer, at random, and moves every mask of the real grid by that permutation:
    a selector that knows the depths, sizes and overlaps of the real masks and not the rows. Its masks are searched as
    the real ones are: same lambda, k, caps, rescue rule and calibration pairs; its operating point is measured on the
    held-out pairs. Without one it counts with the unedited model's held-out rate, and so does the edit. If within a
    layer it does not matter which rows are removed, the edit and the draws are exchangeable, and P(p <= a) <= a for
    p = rank / (draws + 1), ties counted against the edit.

    One seed is one permutation for all selectors and domains. The 95% prediction interval says what a further draw
    would give on these very prompts. p_holm is over all lines of the table.
    Beyond the paper, whose three random masks stand beside the chosen mask only (section 5.3)."""

    replayed = True

    def __init__(self, run: RefusalInputs) -> None:
        self.real = Grid(run, run.contrasts, run.calibration)
        self.grids = {seed: self.real.moved(run, _mover(run, seed)) for seed in range(run.plan.draws)}

    @classmethod
    def grid_count(cls, run: RefusalInputs) -> int:
        return 1 + run.plan.draws

    def cells(self, run: RefusalInputs, known: Results) -> Iterable[Cell[Any]]:
        for grid in (self.real, *self.grids.values()):
            yield from grid.cells(run, known)
            for _, domain, _, edit in _chosen(run, known, grid):
                for one in (UNEDITED, edit):
                    yield run.nll(one)
                    yield run.on_pairs(one, run.heldout[domain])

    def record(self, run: RefusalInputs) -> Json:
        return {DRAW_SEEDS: list(range(run.plan.draws))}  # from 0, so that more draws go on from fewer

    def announcement(self, run: RefusalInputs) -> str:
        most = len(self.grids) * len(self.real.places)
        return (
            f"{run.plan.draws} draws, each a grid of its own: up to {most:,} masks beside the edit's "
            f"{len(self.real.places):,}, each with replies to the calibration pairs of its domain"
        )

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        table, draws = tables["specificity"], run.plan.draws
        text: list[str | TextTable] = [
            TextTable(
                "malign refusal: the edit among layer-matched draws with their own grid",
                ("selector", "domain", "edited", "draws", "95% for a further draw", "rank", "p", "Holm's p"),
                [_row(row) for row in table.iter_rows(named=True)],
            )
        ]
        if (least := table.height / (draws + 1)) > LEVEL:
            text.append(
                f"{draws} draws, tests: {table.height}: Holm's p cannot be below {min(1, least):.2f} so; {LEVEL} takes "
                f"{round(table.height / LEVEL) - 1} draws" + (", or fewer tests" if table.height > 1 else "")
            )
        return Answer(text, {"specificity": table, "draws": tables["refusal_draws"]})

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        real = _measured(run, results, self.real)
        draws = {seed: _measured(run, results, grid) for seed, grid in self.grids.items()}
        lines = [_line(run, seed, one) for seed, found in draws.items() for one in found]
        return {
            "refusal_draws": frame("refusal_draws", lines),
            "specificity": frame("specificity", specificity_lines(run, results, real, list(draws.values()))),
        }


def specificity_lines(
    run: RefusalInputs, results: Results, real: Sequence[Draw], draws: Sequence[Sequence[Draw]]
) -> Iterator[dict[str, object]]:
    """`specificity`: a line per selector and domain. draws: of every seed, in the order of `real`."""
    rates = [[found[place].rates.malign.mean for found in draws] for place in range(len(real))]
    tests = [(p_value(one.rates.malign.mean, some), some) for one, some in zip(real, rates, strict=True)]
    for place, (one, adjusted) in enumerate(zip(real, holm([p for p, _ in tests]), strict=True)):
        p, some = tests[place]
        edited, mean, (low, high) = one.rates.malign.mean, fmean(some), prediction_interval(some)
        pairs = run.heldout[one.domain]
        yield {
            **point_key(run.loaded.id, one.selector, one.domain, one.point),
            "pairs": len(pairs),
            "heldout": run.measures_heldout,
            "unedited_malign": run.rates(results, UNEDITED, pairs).malign.mean,
            "edited_malign": edited,
            "draws": len(some),
            "draws_without_point": sum(found[place].point is None for found in draws),
            "draws_malign": mean,
            "draws_low": low,
            "draws_high": high,
            "excess": edited - mean,
            "excess_low": edited - high,
            "excess_high": edited - low,
            "rank": rank_among(edited, some),
            "p": p,
            "p_holm": adjusted,
            "tests": len(tests),
        }


def _mover(run: RefusalInputs, seed: int) -> Any:
    """Edit -> the edit of its rows shuffled within their layers; drawn when wanted, so that it costs no memory."""
    rows = run.loaded.rows

    def move(edit: Edit) -> Edit:
        return Edit(lambda: shuffled(edit.units, rows, seed), edit.size, edit.intervention, edit.kind)

    return move


def _chosen(run: RefusalInputs, known: Results, grid: Grid) -> Iterator[tuple[str, str, OperatingPoint | None, Edit]]:
    """(selector, domain, point, edit) of a grid whose cells are known; nothing before."""
    for (selector, domain), point in (grid.points(run, known) or {}).items():
        yield selector, domain, point, UNEDITED if point is None else grid.edit_at(point)


def _measured(run: RefusalInputs, results: Results, grid: Grid) -> list[Draw]:
    found = []
    for selector, domain, point, edit in _chosen(run, results, grid):
        rates, nll = run.rates(results, edit, run.heldout[domain]), results[run.nll(edit)].nats_per_token
        found.append(Draw(selector, domain, point, edit, rates, nll))
    return found


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    without = f" ({row['draws_without_point']} without a point)" if row["draws_without_point"] else ""
    edited = f"{row['edited_malign']:.2f}" + ("" if row["k"] is not None else " (no point: unedited)")
    return (
        row["selector"],
        row["domain"],
        edited,
        f"{row['draws_malign']:.2f}{without}",
        f"{row['draws_low']:.2f} to {row['draws_high']:.2f}",
        f"{row['rank']} of {row['draws'] + 1}",
        f"{row['p']:.3f}",
        f"{row['p_holm']:.3f}",
    )


def _line(run: RefusalInputs, seed: int, one: Draw) -> dict[str, object]:
    point, malign, benign = one.point, one.rates.malign, one.rates.benign
    return {
        **point_key(run.loaded.id, one.selector, one.domain, one.point),
        "seed": seed,
        "rescue": point is not None and point.rescue,
        "calibration_malign": point and point.malign,
        "calibration_benign": point and point.benign,
        "malign": malign.mean,
        "malign_n": malign.n,
        "benign": benign.mean,
        "benign_n": benign.n,
        "nll": one.nll,
        "perplexity": perplexity(one.nll),
        **dict(zip(UNFINISHED, (malign.unfinished, benign.unfinished), strict=True)),
    }
