"""What scores alone tell: do two selectors take the same rows, and where in the model are these?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.edits.edit import Ranking
from engine.edits.masks import removed_count
from engine.models.row_index import Layer, RowIndex
from engine.results.tables import frame
from engine.run.audit_plan import AgreementPlan
from engine.run.runner import Results
from engine.stats.removal_order import (
    average_ranks,
    expected_random_jaccard,
    jaccards,
    rank_correlations,
    removal_order,
)
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study

Matrix = npt.NDArray[np.float64]


@register_study(
    "agreement", of=AUDIT, plan=AgreementPlan, tables=("jaccard", "spearman"), reads_text=False,
    title="Do two selectors take the same rows?",
)  # fmt: skip
class Agreement(Study[AuditInputs]):
    """`jaccard` and `spearman`: every pair of selectors once, in the plan's order. The paper, section 4.4.

    A mask is the selector's global LeRF mask at a rate; per sublayer its rows there are compared. Beside
    each Jaccard stands its mean for random masks that take as many rows there. A seeded selector counts by
    the mean over its seeds. Null: no row of the sublayer is in either mask, or a score is constant."""

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        layers = audit.loaded.rows.layers
        in_mlp = np.concatenate([np.full(layer.rows, layer.sublayer == "mlp") for layer in layers])

        def report(done: int) -> None:
            if audit.progress is not None:
                audit.progress("agreement", done, len(audit.rankings))

        sublayers = {"attention": ~in_mlp, "mlp": in_mlp}
        overlaps = pairwise(audit.rankings, sublayers, audit.plan.agreement_rates, report)
        model, pairs = audit.loaded.id, _pairs(audit.rankings)
        overlap = [
            (model, *place, a, b, _mean(overlaps.jaccard[place][of_pair]), _mean(overlaps.expected[place][of_pair]))
            for place in overlaps.jaccard
            for a, b, of_pair in pairs
        ]
        return {"jaccard": frame("jaccard", overlap), "spearman": spearman_table(audit, overlaps.spearman)}


def spearman_table(audit: AuditInputs, found: Matrix | None = None) -> pl.DataFrame:
    """The table `spearman`. found: [R, R] over the rankings, None to be computed."""
    values = pairwise(audit.rankings, {}, ()).spearman if found is None else found
    lines = [(audit.loaded.id, a, b, _mean(values[of_pair])) for a, b, of_pair in _pairs(audit.rankings)]
    return frame("spearman", lines)


@dataclass(frozen=True)
class Pairwise:
    """[R, R] matrices over rankings; jaccard and its random expectation by (sublayer, rate)."""

    jaccard: dict[tuple[str, float], Matrix]
    expected: dict[tuple[str, float], Matrix]
    spearman: Matrix


def pairwise(
    rankings: Sequence[Ranking],
    sublayers: dict[str, npt.NDArray[np.bool_]],
    rates: Sequence[float],
    report: Callable[[int], None] = lambda _: None,
) -> Pairwise:
    """All pairs at once: every ranking is sorted once, for its masks and its ranks, the rest is matrix products.
    sublayers: name -> [N], which rows it has. Memory: R * N * (4 + number of rates) bytes besides the scores."""
    n_rows = rankings[0].scores.size
    ranks = np.empty((len(rankings), n_rows), dtype=np.float32)
    members = {rate: np.zeros((len(rankings), n_rows), dtype=np.bool_) for rate in rates}
    for number, ranking in enumerate(rankings):
        report(number)
        order = ranking.order("lerf")
        ranks[number] = average_ranks(ranking.scores, order)
        for rate in rates:
            members[rate][number, order[: removed_count(rate, n_rows)]] = True
    report(len(rankings))
    jaccard, expected = {}, {}
    for name, inside in sublayers.items():
        for rate in rates:
            here = members[rate][:, inside]
            jaccard[name, rate] = jaccards(here)
            sizes, rows = here.sum(1).tolist(), here.shape[1]
            expected[name, rate] = np.array([[expected_random_jaccard(rows, a, b) for b in sizes] for a in sizes])
    return Pairwise(jaccard, expected, rank_correlations(ranks))


def _pairs(rankings: Sequence[Ranking]) -> list[tuple[str, str, tuple[npt.NDArray[np.intp], ...]]]:
    """Each pair of selectors once, and where a matrix over rankings holds the pairs of their rankings."""
    places: dict[str, list[int]] = {}
    for number, ranking in enumerate(rankings):
        places.setdefault(ranking.selector, []).append(number)
    return [(a, b, np.ix_(places[a], places[b])) for a, b in combinations(places, 2)]


def _mean(values: Matrix) -> float | None:
    """Mean of the numbers that exist, None where there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


class Place(NamedTuple):
    """A part of the model: a projection, a whole sublayer (projection None), or a whole block (both None)."""

    block: int
    sublayer: str | None
    projection: str | None


@register_study(
    "depth", of=AUDIT, tables=("depth", "mask_depth"), reads_text=False, title="Where does a selector see importance?"
)
class Depth(Study[AuditInputs]):
    """`depth`: mean score of every part; `mask_depth`: rows that LeRF masks at the agreement rates take there.

    `depth` holds three levels: per projection; per sublayer (projection null); per block (sublayer null too).
    relative_score = mean score / the largest mean of the same level and selector (the paper's profile is
    that of the blocks), null where that is not positive.
    `mask_depth` is per projection; removed is a mean over seeds for a seeded selector, as are its scores."""

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        by_selector: dict[str, list[Ranking]] = {}
        for ranking in audit.rankings:
            by_selector.setdefault(ranking.selector, []).append(ranking)
        model, rows, rates = audit.loaded.id, audit.loaded.rows, audit.plan.agreement_rates
        profile: list[tuple[object, ...]] = []
        taken: list[tuple[object, ...]] = []
        for selector, ranked in by_selector.items():
            sums = np.mean([layer_sums(ranking.scores, rows) for ranking in ranked], axis=0)
            profile += [(model, selector, *place, *values) for place, *values in depth_profile(sums, rows)]
            counts = np.mean([removed_per_layer(ranking.scores, rows, rates) for ranking in ranked], axis=0)
            for rate, removed in zip(rates, counts, strict=True):
                for layer, count in zip(rows.layers, removed, strict=True):
                    place = Place(layer.block, layer.sublayer, layer.projection)
                    taken.append((model, selector, rate, *place, count, layer.rows))
        return {"depth": frame("depth", profile), "mask_depth": frame("mask_depth", taken)}


def depth_profile(sums: npt.NDArray[np.float64], rows: RowIndex) -> Iterator[tuple[Place, float, float | None]]:
    """Mean score of every part at each level, and that divided by the level's largest. Every row counts once.
    sums: `layer_sums`, [layers]"""
    for level in _levels(rows):
        means = {
            place: float(sums[[layer.index for layer in layers]].sum() / sum(layer.rows for layer in layers))
            for place, layers in level.items()
        }
        largest = max(means.values())
        for place, mean in means.items():
            yield place, mean, mean / largest if largest > 0 else None


def layer_sums(scores: npt.ArrayLike, rows: RowIndex) -> npt.NDArray[np.float64]:
    """Sum of the scores of every layer, in float64. [N] -> [layers]"""
    return np.add.reduceat(np.asarray(scores, dtype=np.float64), [layer.start for layer in rows.layers])


def removed_per_layer(scores: npt.ArrayLike, rows: RowIndex, rates: Sequence[float]) -> npt.NDArray[np.int64]:
    """Rows of every layer in the LeRF mask of each rate. [N] -> [rates, layers]"""
    order = removal_order(scores, "lerf")
    layer_of = rows.layer_of(order)
    counts = [np.bincount(layer_of[: removed_count(rate, order.size)], minlength=len(rows.layers)) for rate in rates]
    return np.array(counts, dtype=np.int64)


def _levels(rows: RowIndex) -> list[dict[Place, list[Layer]]]:
    """The layers of every part: by projection, by sublayer, by block."""
    levels: list[dict[Place, list[Layer]]] = [{}, {}, {}]
    for layer in rows.layers:
        projection = Place(layer.block, layer.sublayer, layer.projection)
        sublayer = projection._replace(projection=None)
        for level, place in zip(levels, (projection, sublayer, sublayer._replace(sublayer=None)), strict=True):
            level.setdefault(place, []).append(layer)
    return levels
