"""One mask for two domains: built from the pairs of both, measured on each beside the masks of one domain."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.edits.edit import UNEDITED, Edit
from engine.measures.nll import perplexity
from engine.records.domain_names import find_domain
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.runner import Cell, Results
from engine.studies.base import Answer, Tables, TextTable
from engine.studies.refusal.grid import UNFINISHED, Grid, OverGrids, Points
from engine.studies.refusal.inputs import RefusalInputs
from engine.studies.refusal.mask_outputs import SEVERAL, kept_masks, of_point
from engine.studies.refusal.points import edits

NONE = "none"


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
        points = self.grid.points(run, results)
        assert points is not None
        lines: list[tuple[object, ...]] = []
        for masked in self._masks(run, results, points):
            nll = results[run.nll(masked.edit)].nats_per_token
            for domain in self.domains:
                rates = run.rates(results, masked.edit, run.heldout[domain])
                both = (rates.malign, rates.benign)
                place = (run.loaded.id, masked.selector, masked.mask_domain, domain)
                edit = (masked.lam, masked.k, masked.edit.size)
                sides = [value for rate in both for value in (rate.mean, *rate.interval, rate.n)]
                cut_off = (rate.unfinished for rate in both)
                lines.append((*place, *edit, *sides, nll, perplexity(nll), masked.rescue, *cut_off))
        return {"composed": frame("composed", lines, optional=UNFINISHED), **self.grid.tables(run, results)}

    def masks(self, run: RefusalInputs, results: Results) -> list[Edit]:
        """The composed mask of every selector that has one."""
        points = self.grid.points(run, results)
        assert points is not None
        return [
            of_point(run, edit, point, self.masks_of)
            for _, _, point, edit in edits(run, self.contrasts, points)
            if point
        ]

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        table = TextTable(
            "refusal on held-out pairs; masks of one selector have the same number of rows",
            ("selector", "mask from", "asked about", "rows", "malign", "benign", "perplexity"),
            [_row(row) for row in tables["composed"].iter_rows(named=True)],
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
                    own = best[one.selector, one.domain].points(run, known)
                    assert own is not None
                    [chosen] = own.values()
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


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    rates = (f"{row['malign']:.2f}", f"{row['benign']:.2f}", f"{row['perplexity']:.4g}")
    return row["selector"], row["mask_domain"], row["evaluated_domain"], str(row["rows_removed"]), *rates
