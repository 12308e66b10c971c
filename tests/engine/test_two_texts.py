"""Draws of two texts: level on noise, power, the permutation test against all labellings by hand."""

import math
from itertools import combinations

import numpy as np
import pytest

from engine.records.errors import InputError
from engine.stats.layer_matched import compare_draws
from engine.stats.removal_order import jaccards
from engine.stats.uncertainty import LEVEL

ROWS, RATE = 100, 0.3


def overlaps(generator, draws, shift, selectors=3):
    """Masks of `selectors` rankings, from scores that all share the draws' noise in part. [selectors, 2k, 2k]"""
    truth = generator.normal(size=(selectors, ROWS))
    moved = truth + shift * generator.normal(size=(selectors, ROWS))
    common = generator.normal(size=(2 * draws, ROWS))
    found = []
    for selector in range(selectors):
        own = np.where(np.arange(2 * draws)[:, None] < draws, truth[selector], moved[selector])
        scores = own + 0.5 * common + 0.5 * generator.normal(size=(2 * draws, ROWS))
        places = scores.argsort(axis=1).argsort(axis=1)
        found.append(jaccards(places < RATE * ROWS))
    return np.stack(found)


@pytest.mark.long
def test_no_text_matters_in_at_most_the_nominal_share_of_tables():
    generator, tables = np.random.default_rng(5), 250
    smallest = [min(one.p for one in compare_draws(overlaps(generator, 4, 0.0))) for _ in range(tables)]
    assert min(smallest) == pytest.approx(1 / 35)
    assert np.mean(np.array(smallest) <= LEVEL) <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / tables)
    # 35 labellings are equally likely: the smallest p is 1 / 35 in one table of 35
    assert np.mean(np.array(smallest) <= LEVEL) == pytest.approx(1 / 35, abs=4 * math.sqrt(1 / 35 / tables))


def test_a_text_that_matters_is_seen():
    generator = np.random.default_rng(6)
    found = compare_draws(overlaps(generator, 4, 1.0))
    assert [one.p for one in found] == pytest.approx([1 / 35] * 3)
    assert all(one.drop > 0.05 for one in found)


def test_against_all_labellings_by_hand():
    generator = np.random.default_rng(7)
    matrices = overlaps(generator, 3, 0.2)
    drops = []
    for half in combinations(range(6), 3):
        rest = [draw for draw in range(6) if draw not in half]
        parts = [[m[i, j] for some in (half, rest) for i, j in combinations(some, 2)] for m in matrices]
        across = [[m[i, j] for i in half for j in rest] for m in matrices]
        drops.append([np.mean(within) - np.mean(between) for within, between in zip(parts, across, strict=True)])
    table = np.array(drops) / np.std(drops, axis=0)
    for place, one in enumerate(compare_draws(matrices)):
        assert one.drop == pytest.approx(drops[0][place])
        assert one.p == pytest.approx(np.mean(table.max(axis=1) >= table[0, place] - 1e-9))
        assert one.within_a == pytest.approx(np.mean([matrices[place][i, j] for i, j in combinations(range(3), 2)]))


def test_draws_that_all_agree_say_nothing():
    (one,) = compare_draws(np.ones((1, 8, 8)))
    assert one == (1.0, 1.0, 1.0, 0.0, 1.0)
    for wrong in (np.ones((1, 2, 2)), np.ones((1, 5, 5)), np.full((1, 4, 4), math.nan)):
        with pytest.raises(InputError, match="at least 2 draws of each"):
            compare_draws(wrong)
