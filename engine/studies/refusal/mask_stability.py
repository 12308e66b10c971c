"""Does the mask depend on which prompts it was made from? Masks of disjoint halves of the calibration pairs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import polars as pl

from engine.data.corpora import Pair
from engine.edits.contrasts import refusal_mask
from engine.edits.controls import shuffled
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.runner import Results
from engine.selectors import get_selector
from engine.stats.similarity import expected_random_jaccard, jaccard
from engine.studies.base import Answer, Tables, TextTable
from engine.studies.refusal.algorithm import calibrate
from engine.studies.refusal.grid import Points
from engine.studies.refusal.inputs import RefusalInputs
from engine.studies.refusal.points import Chosen

SHUFFLES = 10  # random masks behind `expected_layers`


class MaskStability(Chosen):
    """`mask_stability`: overlap of the masks of two halves of the pairs, at the operating point's lambda and k.

    The calibration pairs of a domain are split at random into two halves, once per seed 0 .. splits - 1. jaccard:
    between the halves' masks; jaccard_full: of each with the mask of all pairs, on average. expected_random: what two
    random masks of that size share; expected_layers: what the second half's mask shares with the first's once its rows
    are shuffled within their layers, mean of 10. Seeded selectors have no line. Beyond the paper. `InputError` where a
    domain has fewer than four pairs."""

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        lines = self._lines(run, self.points(run, results))
        return {"mask_stability": frame("mask_stability", lines)}

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        return f"{tables['mask_stability'].height} pairs of masks compared"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        columns = ("jaccard", "jaccard_full", "expected_layers", "expected_random")
        means = tables["mask_stability"].group_by("selector", "domain", maintain_order=True).agg(pl.col(columns).mean())
        table = TextTable(
            f"Jaccard of masks, mean of {run.plan.splits} splits of the pairs",
            ("selector", "domain", "half against half", "half against all", "same layers, random", "random"),
            [(row[0], row[1], *(f"{value:.3f}" for value in row[2:])) for row in means.iter_rows()],
        )
        return Answer((table,), dict(tables))

    def _lines(self, run: RefusalInputs, points: Points) -> Iterator[tuple[object, ...]]:
        full = {(one.selector, one.domain): one for one in run.contrasts}
        usable = run.contrastable(run.calibration)
        for seed in range(run.plan.splits):
            parts = {domain: halves(pairs, seed) for domain, pairs in usable.items()}
            sides = ({domain: both[side] for domain, both in parts.items()} for side in (0, 1))
            made = (calibrate(run.loaded, run.plan, half, store=run.store, progress=run.progress) for half in sides)
            first, second = ({(one.selector, one.domain): one for one in some} for some in made)
            for place, point in points.items():
                if point is None or get_selector(place[0]).seeded:
                    continue
                a, b, whole = (refusal_mask(found[place], point.lam, point.k) for found in (first, second, full))
                key = (run.loaded.id, *place, point.lam, point.k, whole.size, seed, len(parts[place[1]][0]))
                own = fmean((jaccard(a, whole), jaccard(b, whole)))
                chance = expected_random_jaccard(run.loaded.rows.n_rows, a.size, b.size)
                at_equal_depths = (jaccard(a, shuffled(b, run.loaded.rows, draw)) for draw in range(SHUFFLES))
                yield *key, jaccard(a, b), own, chance, fmean(at_equal_depths)


def halves(pairs: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Two disjoint random halves, equally many; one pair is left out of an odd number."""
    if len(pairs) < 4:
        raise InputError(
            f"{pairs[0].domain}: the stability of a mask needs at least four calibration pairs, got {len(pairs)}"
        )
    order = np.random.default_rng(seed).permutation(len(pairs))
    size = len(pairs) // 2
    first, second = (sorted(part.tolist()) for part in (order[:size], order[size : 2 * size]))
    return [pairs[place] for place in first], [pairs[place] for place in second]
