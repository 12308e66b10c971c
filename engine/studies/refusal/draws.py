"""Grids beside the real one: of layer-matched draws, which are searched, chosen and measured like the edit, so that
noise is not taken for specificity; and of several domains together, for one mask of all of them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from engine.edits.control_edits import shuffled
from engine.edits.edit import UNEDITED, Edit
from engine.measures.nll import perplexity
from engine.records.domain_names import find_domain
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.results.tables import frame
from engine.run.runner import Cell, Results
from engine.stats.layer_matched import p_value, prediction_interval, rank_among
from engine.stats.uncertainty import holm
from engine.studies.base import Answer, Tables, TextTable
from engine.studies.refusal.grid import UNFINISHED, Grid, OverGrids, Points
from engine.studies.refusal.mask_outputs import SEVERAL, kept_masks
from engine.studies.refusal.operating_point import OperatingPoint, point_key
from engine.studies.refusal.points import masks_of_points
from engine.studies.refusal.refusal_inputs import DRAW_SEEDS, Rates, RefusalInputs

LEVEL = 0.05
NONE = "none"


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
            "draws_malign": mean, "draws_low": low, "draws_high": high,
            "excess": edited - mean, "excess_low": edited - high, "excess_high": edited - low,
            "rank": rank_among(edited, some), "p": p, "p_holm": adjusted, "tests": len(tests),
        }  # fmt: skip


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
    draws = []
    for selector, domain, point, edit in _chosen(run, results, grid):
        rates, nll = run.rates(results, edit, run.heldout[domain]), results[run.nll(edit)].nats_per_token
        draws.append(Draw(selector, domain, point, edit, rates, nll))
    return draws


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    without = f" ({row['draws_without_point']} without a point)" if row["draws_without_point"] else ""
    edited = f"{row['edited_malign']:.2f}" + ("" if row["k"] is not None else " (no point: unedited)")
    drawn = (f"{row['draws_malign']:.2f}{without}", f"{row['draws_low']:.2f} to {row['draws_high']:.2f}")
    rank = f"{row['rank']} of {row['draws'] + 1}"
    return row["selector"], row["domain"], edited, *drawn, rank, f"{row['p']:.3f}", f"{row['p_holm']:.3f}"


def _line(run: RefusalInputs, seed: int, one: Draw) -> dict[str, object]:
    point, malign, benign = one.point, one.rates.malign, one.rates.benign
    return {
        **point_key(run.loaded.id, one.selector, one.domain, one.point),
        "seed": seed, "rescue": point is not None and point.rescue,
        "calibration_malign": point and point.malign, "calibration_benign": point and point.benign,
        "malign": malign.mean, "malign_n": malign.n, "benign": benign.mean, "benign_n": benign.n,
        "nll": one.nll, "perplexity": perplexity(one.nll),
        **dict(zip(UNFINISHED, (malign.unfinished, benign.unfinished), strict=True)),
    }  # fmt: skip


class _Masked(NamedTuple):
    """One mask to be measured on every domain."""

    selector: str
    mask_domain: str
    lam: float
    k: float
    edit: Edit
    rescue: bool


def check_domains(run: RefusalInputs, domains: Sequence[str]) -> tuple[str, ...]:
    """The ids of several domains of the run's pairs. `InputError` where they are no such domains."""
    ids = tuple(dict.fromkeys(find_domain(domain, run.calibration, "domain of the pairs") for domain in domains))
    if len(ids) < 2:
        raise InputError(f"a composed mask needs at least two domains, got {list(domains)}; write hate,crime")
    return ids


class Composed(OverGrids):
    """`composed` and the sweep behind it: one contrast from the pairs of several domains, for every selector.

    The composed mask is the operating point on the calibration pairs of all these domains together. Beside it stand the
    masks of each domain alone with the same number of rows, each at the lambda that is best for its own domain there
    (where none is within the limits, at the composed mask's), and the unedited model (`mask_domain` none). All are
    measured on the held-out pairs of each domain. The paper (section 5.4) leaves a mask from hate and crime as a
    prediction."""

    masks_of = "composed"

    def __init__(self, run: RefusalInputs) -> None:
        domains = check_domains(run, tuple(run.calibration))
        self.domains, self.name = domains, SEVERAL.join(domains)
        union = {self.name: [pair._replace(domain=self.name) for domain in domains for pair in run.calibration[domain]]}
        self.contrasts = run.contrasts_of(union)
        self.singles = run.contrasts_of({domain: run.calibration[domain] for domain in domains})
        self.grid = Grid(run, self.contrasts, union, stem="composed_sweep")
        self._narrow: dict[tuple[str, str, float], Grid] = {}

    def cells(self, run: RefusalInputs, known: Results) -> Iterable[Cell[Any]]:
        yield from self.grid.cells(run, known)
        points = self.grid.points(run, known)
        if points is None:
            return
        narrow = [grid for _, grid in self._best_of(run, points)]
        for grid in narrow:
            yield from grid.cells(run, known)
        if all(grid.points(run, known) is not None for grid in narrow):
            for masked in self._masks(run, known, points):
                yield run.nll(masked.edit)
                for domain in self.domains:
                    yield run.on_pairs(masked.edit, run.heldout[domain])

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        points = self.grid.final_points(run, results)
        lines: list[tuple[object, ...]] = []
        for masked in self._masks(run, results, points):
            nll = results[run.nll(masked.edit)].nats_per_token
            for domain in self.domains:
                rates = run.rates(results, masked.edit, run.heldout[domain])
                both = (rates.malign, rates.benign)
                keys = (run.loaded.id, masked.selector, masked.mask_domain, domain)
                edit = (masked.lam, masked.k, masked.edit.size)
                sides = [value for rate in both for value in (rate.mean, *rate.interval, rate.n)]
                cut_off = (rate.unfinished for rate in both)
                lines.append((*keys, *edit, *sides, nll, perplexity(nll), masked.rescue, *cut_off))
        return {"composed": frame("composed", lines, optional=UNFINISHED), **self.grid.tables(run, results)}

    def masks(self, run: RefusalInputs, results: Results) -> list[Edit]:
        """The composed mask of every selector that has one."""
        return masks_of_points(run, self.contrasts, self.grid.final_points(run, results), self.masks_of)

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        table = TextTable(
            "refusal on held-out pairs; masks of one selector have the same number of rows",
            ("selector", "mask from", "asked about", "rows", "malign", "benign", "perplexity"),
            [_composed_row(row) for row in tables["composed"].iter_rows(named=True)],
        )
        masks = list(kept_masks(folder, self.masks_of).values())
        return Answer((table,), {"composed": tables["composed"], "masks": masks})

    def _masks(self, run: RefusalInputs, known: Results, points: Points) -> Iterator[_Masked]:
        best = dict(self._best_of(run, points))
        for contrast in self.contrasts:
            yield _Masked(contrast.selector, NONE, 0.0, 0.0, UNEDITED, False)
            point = points[contrast.selector, self.name]
            if point is None:
                continue
            edit = run.refusal_edit(contrast, point.lam, point.k)
            yield _Masked(contrast.selector, self.name, point.lam, point.k, edit, point.rescue)
            for one in self.singles:
                if one.selector == contrast.selector:
                    [chosen] = best[one.selector, one.domain].final_points(run, known).values()
                    lam = chosen.lam if chosen else point.lam
                    single = run.refusal_edit(one, lam, point.k)
                    yield _Masked(contrast.selector, one.domain, lam, point.k, single, False)

    def _best_of(self, run: RefusalInputs, points: Points) -> Iterator[tuple[tuple[str, str], Grid]]:
        """Grids over lambda of every single contrast, at the k of its selector's composed point."""
        for one in self.singles:
            point = points[one.selector, self.name]
            if point is not None:
                key = (one.selector, one.domain, point.k)
                if key not in self._narrow:
                    pairs = {one.domain: run.calibration[one.domain]}
                    self._narrow[key] = Grid(run, [one], pairs, ks=(point.k,))
                yield (one.selector, one.domain), self._narrow[key]


def _composed_row(row: dict[str, Any]) -> tuple[str, ...]:
    rates = (f"{row['malign']:.2f}", f"{row['benign']:.2f}", f"{row['perplexity']:.4g}")
    return row["selector"], row["mask_domain"], row["evaluated_domain"], str(row["rows_removed"]), *rates
