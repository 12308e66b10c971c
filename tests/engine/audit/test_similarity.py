"""Spearman against scipy, Jaccard against sets, its chance level against enumeration, scipy and simulation."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import scipy.stats

from engine.stats.removal_order import (
    average_ranks,
    expected_random_jaccard,
    jaccard,
    jaccards,
    rank_correlations,
    removal_order,
    spearman,
)


def scores(kind: str, rows: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if kind == "ties":
        return generator.integers(-4, 5, rows).astype(np.float32)
    if kind == "zeros":  # both signs of zero are one value
        return np.where(generator.random(rows) < 0.4, generator.choice([0.0, -0.0], rows), 1.5).astype(np.float32)
    return generator.standard_normal(rows).astype(np.float32)


@pytest.mark.parametrize("kind", ["distinct", "ties", "zeros"])
@pytest.mark.parametrize("rows", [2, 3, 101, 1000])
def test_ranks_are_scipys(kind: str, rows: int) -> None:
    values = scores(kind, rows, seed=rows)
    expected = scipy.stats.rankdata(values, method="average")
    ranks = average_ranks(values)
    assert ranks.dtype == np.float32
    assert (ranks == expected - expected.mean()).all()  # halves are exact in float32
    assert (average_ranks(values, removal_order(values, "lerf")) == ranks).all()


def test_ranks_of_more_rows_than_float32_has_room_for_in_their_plain_form() -> None:
    values = np.arange(3_500_000, dtype=np.float32)
    values[-1] = values[-2]  # the tie shares a half
    ranks = average_ranks(values)
    assert ranks[-1] == ranks[-2] == 1_749_999.0
    assert ranks[0] == -1_749_999.5


@pytest.mark.parametrize(("first", "second"), list(product(["distinct", "ties", "zeros"], repeat=2)))
def test_spearman_is_scipys(first: str, second: str) -> None:
    a, b = scores(first, 500, 1), scores(second, 500, 2)
    # float64 sums of 500 products
    assert spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-13)


def test_a_constant_score_has_no_correlation() -> None:
    assert math.isnan(spearman(np.ones(9), np.arange(9)))
    found = rank_correlations(np.stack([average_ranks(np.ones(9)), average_ranks(np.arange(9))]))
    assert np.isnan(found[0]).all()
    assert found[1, 1] == pytest.approx(1)


def test_jaccard_is_that_of_sets() -> None:
    generator = np.random.default_rng(0)
    members = generator.random((4, 137)) < np.array([[0.1], [0.5], [0.9], [0.0]])
    found = jaccards(members)
    masks = [np.flatnonzero(row) for row in members]
    for i, j in product(range(4), repeat=2):
        a, b = set(masks[i].tolist()), set(masks[j].tolist())
        if a | b:
            assert found[i, j] == jaccard(masks[i], masks[j]) == len(a & b) / len(a | b)
        else:
            assert math.isnan(found[i, j])
            assert math.isnan(jaccard(masks[i], masks[j]))


@pytest.mark.parametrize(("rows", "first", "second"), [(6, 2, 3), (7, 5, 4), (5, 0, 2), (5, 5, 5), (1, 1, 0)])
def test_chance_level_by_trying_every_pair_of_masks(rows: int, first: int, second: int) -> None:
    values = [
        len(set(a) & set(b)) / len(set(a) | set(b))
        for a in combinations(range(rows), first)
        for b in combinations(range(rows), second)
    ]
    expected = sum(values) / len(values)
    assert expected_random_jaccard(rows, first, second) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("rows", "first", "second"), [(900, 300, 450), (5000, 20, 4990), (20000, 6000, 6000), (3000, 1, 2000)]
)
def test_chance_level_over_the_whole_hypergeometric_distribution(rows: int, first: int, second: int) -> None:
    overlap = np.arange(max(0, first + second - rows), min(first, second) + 1)
    probability = scipy.stats.hypergeom(rows, first, second).pmf(overlap)
    expected = (probability * overlap / (first + second - overlap)).sum()
    # scipy's probabilities are good to about 1e-11
    assert expected_random_jaccard(rows, first, second) == pytest.approx(expected, rel=1e-9)


def test_chance_level_of_millions_of_rows_is_near_the_ratio_of_expectations() -> None:
    rows, taken = 2_500_000, 750_000
    mean = taken * taken / rows
    # at this size the overlap hardly varies: sd about 360 of 225,000
    assert expected_random_jaccard(rows, taken, taken) == pytest.approx(mean / (2 * taken - mean), rel=1e-5)
