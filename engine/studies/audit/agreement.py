"""Do two selectors take the same rows? Jaccard of LeRF masks per sublayer, Spearman over all rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from engine.edits.masks import removed_count
from engine.edits.ranked_edits import Ranking
from engine.results.tables import frame
from engine.run.audit_plan import AgreementPlan
from engine.run.runner import Results
from engine.stats.similarity import average_ranks, expected_random_jaccard, jaccards, rank_correlations
from engine.studies.audit.inputs import AuditInputs
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
        found = pairwise(audit.rankings, sublayers, audit.plan.agreement_rates, report)
        model, pairs = audit.loaded.id, _pairs(audit.rankings)
        overlap = [
            (model, *place, a, b, _mean(found.jaccard[place][of_pair]), _mean(found.expected[place][of_pair]))
            for place in found.jaccard
            for a, b, of_pair in pairs
        ]
        correlation = [(model, a, b, _mean(found.spearman[of_pair])) for a, b, of_pair in pairs]
        return {"jaccard": frame("jaccard", overlap), "spearman": frame("spearman", correlation)}


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
