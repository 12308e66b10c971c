"""Do two selectors take the same rows? Jaccard of LeRF masks per sublayer, Spearman over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.analysis.audit import Audit
from engine.analysis.similarity import average_ranks, expected_random_jaccard, jaccards, rank_correlations
from engine.masks import removed_count
from engine.ranking import removal_order
from engine.sweep import Ranking

JACCARD_SCHEMA = {
    "model": pl.String,
    "sublayer": pl.String,
    "rate": pl.Float64,
    "selector_a": pl.String,
    "selector_b": pl.String,
    "jaccard": pl.Float64,
    "expected_random": pl.Float64,
}
SPEARMAN_SCHEMA = {
    "model": pl.String,
    "selector_a": pl.String,
    "selector_b": pl.String,
    "spearman": pl.Float64,
}
Matrix = npt.NDArray[np.float64]


def agreement(audit: Audit) -> dict[str, pl.DataFrame]:
    """`jaccard` and `spearman`: every pair of selectors once, in the plan's order. The paper, section 4.4.

    A mask is the selector's global LeRF mask at a rate; per sublayer its rows there are compared. Beside
    each Jaccard stands its mean for random masks that take as many rows there. A seeded selector counts by
    the mean over its seeds. Null: no row of the sublayer is in either mask, or a score is constant.
    """
    rankings = list(audit.rankings())
    rates = audit.plan.agreement_rates
    in_mlp = np.concatenate(
        [np.full(layer.rows, layer.sublayer == "mlp") for layer in audit.loaded.rows.layers]
    )

    def report(done: int) -> None:
        audit.report("agreement", done, len(rankings))

    found = pairwise(rankings, {"attention": ~in_mlp, "mlp": in_mlp}, rates, report)
    model, pairs = audit.loaded.id, _pairs(rankings)
    overlap = [
        (model, *place, a, b, _mean(found.jaccard[place][of_pair]), _mean(found.expected[place][of_pair]))
        for place in found.jaccard
        for a, b, of_pair in pairs
    ]
    correlation = [(model, a, b, _mean(found.spearman[of_pair])) for a, b, of_pair in pairs]
    return {
        "jaccard": pl.DataFrame(overlap, schema=JACCARD_SCHEMA, orient="row"),
        "spearman": pl.DataFrame(correlation, schema=SPEARMAN_SCHEMA, orient="row"),
    }


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

    sublayers: name -> [N], which rows it has. Memory: R * N * (4 + number of rates) bytes besides the scores.
    """
    n_rows = rankings[0].scores.size
    ranks = np.empty((len(rankings), n_rows), dtype=np.float32)
    members = {rate: np.zeros((len(rankings), n_rows), dtype=np.bool_) for rate in rates}
    for number, ranking in enumerate(rankings):
        report(number)
        order = removal_order(ranking.scores, "lerf")
        ranks[number] = average_ranks(ranking.scores, order)
        for rate in rates:
            members[rate][number, order[: removed_count(rate, n_rows)]] = True
    report(len(rankings))
    jaccard, expected = {}, {}
    for name, inside in sublayers.items():
        for rate in rates:
            here = members[rate][:, inside]
            jaccard[name, rate] = jaccards(here)
            expected[name, rate] = _expected(here.sum(1).tolist(), here.shape[1])
    return Pairwise(jaccard, expected, rank_correlations(ranks))


def _expected(sizes: list[int], rows: int) -> Matrix:
    return np.array([[expected_random_jaccard(rows, a, b) for b in sizes] for a in sizes])


def _pairs(rankings: Sequence[Ranking]) -> list[tuple[str, str, tuple[npt.NDArray[np.intp], ...]]]:
    """Each pair of selectors once, and where a matrix over rankings holds the pairs of their rankings."""
    places: dict[str, list[int]] = {}
    for number, ranking in enumerate(rankings):
        places.setdefault(ranking.selector, []).append(number)
    return [(a, b, np.ix_(places[a], places[b])) for a, b in combinations(places, 2)]


def _mean(values: Matrix) -> float | None:
    """Mean of the numbers that exist, None where there is none."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if there.size else None
