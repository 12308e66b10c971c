"""The NLL of every ranking under a list of orders and rates, which several analyses read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from engine.analysis.audit import Audit
from engine.evaluation.perplexity import NegativeLogLikelihood
from engine.masks import removed_count
from engine.ranking import removal_order
from engine.sweep import Ranking


class Cell(NamedTuple):
    """One mask: a ranking's first `round(rate * N)` rows in an order. seed: None unless the selector is seeded."""

    selector: str
    seed: int | None
    order: str
    rate: float


def evaluate(
    audit: Audit, stage: str, rankings: Iterable[Ranking], orders: Sequence[str], rates: Sequence[float]
) -> dict[Cell, NegativeLogLikelihood]:
    """NLL per window of every cell: ranking by ranking, then order, then rate, each as given."""
    rankings = list(rankings)
    total = len(rankings) * len(orders) * len(rates)
    found: dict[Cell, NegativeLogLikelihood] = {}
    audit.report(stage, 0, total)
    for ranking in rankings:
        for order in orders:
            rows = removal_order(ranking.scores, order)
            for rate in rates:
                mask = np.sort(rows[: removed_count(rate, rows.size)])
                found[Cell(ranking.selector, ranking.seed, order, rate)] = audit.nll(mask)
                audit.report(stage, len(found), total)
    return found


def defined(value: float | None) -> float | None:
    """None for a number that does not exist; tables hold nulls, never NaN."""
    return None if value is None or math.isnan(value) else value
