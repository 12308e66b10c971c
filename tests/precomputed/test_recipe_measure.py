"""How the recipe chooses an operating point and states its margins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from precomputed.recipe import measure, seeds
from precomputed.recipe.measure import Rates


@pytest.fixture
def cells(monkeypatch):
    """Rates by (lambda, k), in place of generation; a mask is its own cell."""
    table: dict[tuple[float, float], Rates] = {
        (lam, k): Rates(10, 0, 64, 2.0) for lam in measure.LAMBDAS for k in measure.KS
    }
    monkeypatch.setattr(measure, "refusal_mask", lambda contrast, lam, k: (lam, k))
    monkeypatch.setattr(measure, "refusal_rates", lambda loaded, pairs, mask, windows: table[mask])
    return table


def _point(dense_nll: float = 2.0) -> tuple[float, float]:
    return measure.operating_point(None, None, [], None, Rates(5, 0, 64, dense_nll))  # type: ignore[arg-type]


def test_largest_malign_refusal_wins(cells):
    cells[(0.8, 0.02)] = Rates(60, 6, 64, 2.1)
    assert _point() == (0.8, 0.02)


def test_too_many_benign_refusals_or_too_much_perplexity_do_not_count(cells):
    cells[(0.8, 0.02)] = Rates(60, 7, 64, 2.1)  # 7 of 64 is above 10%
    cells[(0.5, 0.02)] = Rates(60, 0, 64, 2.0 + math.log(1.5) + 0.01)
    cells[(0.2, 0.05)] = Rates(30, 6, 64, 2.0 + math.log(1.5) - 0.01)
    assert _point() == (0.2, 0.05)


def test_ties_go_to_the_smaller_mask(cells):
    assert _point() == (measure.LAMBDAS[0], measure.KS[0])


def test_without_a_feasible_cell_there_is_no_point(cells):
    for key in cells:
        cells[key] = Rates(60, 30, 64, 2.0)
    assert _point() is None


def test_margins_compare_with_the_best_of_the_others():
    lerf = {"random": 4.0, "magnitude": 3.5, "wanda": 5.0, "mean_activation": 4.2}
    lerf |= {"lrp": 2.5, "ig": 2.75, "consensus2": 2.6}
    morf = dict.fromkeys(lerf, 7.0)
    record = {"dense_nll": 2.25, "nll": {"lerf": {"0.30": lerf}, "morf": {"0.10": morf}}}
    assert seeds.margins(record) == pytest.approx(
        {"lerf lrp": 1.0, "lerf ig": 0.75, "lerf consensus2": 0.9, "morf lrp": 4.75, "morf consensus2": 4.75}
    )


def test_masked_nll_averages_the_seeds_of_random(monkeypatch):
    from contextlib import contextmanager
    from types import SimpleNamespace

    masks = []

    @contextmanager
    def zeroed(loaded, mask):
        masks.append(mask)
        yield

    monkeypatch.setattr(measure, "zeroed", zeroed)
    monkeypatch.setattr(
        measure,
        "negative_log_likelihood",
        lambda loaded, windows: SimpleNamespace(nats_per_token=float(masks[-1].sum())),
    )
    scores = {
        "one": np.arange(4, dtype=np.float32),
        "random": np.array([[0, 1, 2, 3], [3, 2, 1, 0]], dtype=np.float32),
    }
    result = measure.masked_nll(None, scores, "lerf", 0.5, None)  # type: ignore[arg-type]
    assert result == {"one": 0 + 1, "random": ((0 + 1) + (2 + 3)) / 2}
