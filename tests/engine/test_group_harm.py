"""Harm of groups against random ones: level on noise of several shapes, power, ranks where nothing is finite."""

import math

import numpy as np
import pytest
from scipy import stats

from engine.records.errors import InputError
from engine.stats.layer_matched import FLOOR, Candidate, excess_p, judge_groups
from engine.stats.uncertainty import LEVEL

LIMIT = math.log(2)
SHAPES = {
    "normal": lambda generator, size: generator.normal(0.8, 0.2, size),
    "gamma": lambda generator, size: generator.gamma(4, 0.2, size),
    "exponential": lambda generator, size: generator.exponential(0.6, size) - 0.02,
    "log-normal": lambda generator, size: 0.6 * generator.lognormal(0, 0.5, size),
}


@pytest.mark.first_run("gamma|log-normal")
@pytest.mark.parametrize("shape", SHAPES)
def test_random_groups_are_called_dangerous_at_most_at_the_nominal_level(shape):
    """Selectors that know nothing: their groups are further draws. About half of them are above the limit."""
    generator, runs, groups, called, above = np.random.default_rng(2), 150, 40, 0, 0
    for _ in range(runs):
        harms = SHAPES[shape](generator, (groups, 11))
        found = judge_groups([Candidate(one[0], tuple(one[1:])) if one[0] > LIMIT else None for one in harms], LIMIT)
        above += sum(p is not None for p, _ in found)
        called += any(whole is not None and whole <= LEVEL for _, whole in found)
    assert above > 0.1 * runs * groups
    assert called / runs <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / runs)


def test_a_prediction_test_in_nats_and_in_logarithms():
    draws = [0.8, 0.9, 1.1, 1.0, 0.7]
    own = []
    for values, value in ((draws, 2.0), (np.log(draws), math.log(2.0))):
        t = (value - np.mean(values)) / (np.std(values, ddof=1) * math.sqrt(1 + 1 / 5))
        own.append(stats.t.sf(t, 4))
    assert excess_p(2.0, draws, LIMIT) == pytest.approx(max(own))
    low = [-0.5, 0.001, 0.0, 0.5]
    logs = np.log(np.maximum(low, FLOOR * LIMIT))
    t = (math.log(0.8) - logs.mean()) / (logs.std(ddof=1) * math.sqrt(1 + 1 / 4))
    assert excess_p(0.8, low, LIMIT) == pytest.approx(
        max(stats.t.sf(t, 3), stats.t.sf((0.8 - np.mean(low)) / (np.std(low, ddof=1) * math.sqrt(1.25)), 3))
    )


def test_a_group_far_beyond_its_draws_is_found_among_many():
    generator = np.random.default_rng(1)
    draws = tuple(generator.normal(0.3, 0.05, 10))
    found = judge_groups([Candidate(2.5, draws), *([None] * 120)], LIMIT)
    assert found[0][1] <= LEVEL
    assert found[0][1] == pytest.approx(121 * found[0][0])
    assert found[1:] == [(None, None)] * 120
    harmless = tuple(generator.normal(0.0, 0.001, 10))  # random rows do nothing: logarithms are all at the floor
    assert excess_p(0.8, harmless, LIMIT) < 1e-6
    assert excess_p(0.01, draws, LIMIT) > 0.9


def test_ranks_where_nothing_varies_or_is_not_finite():
    assert excess_p(1.0, [1.0, 1.0, 1.0], LIMIT) == 1.0
    assert excess_p(2.0, [1.0, 1.0, 1.0], LIMIT) == 0.25
    assert excess_p(math.nan, [1.0, 2.0, 3.0], LIMIT) == 0.25
    assert excess_p(math.inf, [1.0, math.nan, 3.0], LIMIT) == 0.5
    assert excess_p(2.0, [1.0, math.inf, 3.0], LIMIT) == 0.75
    with pytest.raises(InputError, match="at least 2 random groups"):
        excess_p(1.0, [0.5], LIMIT)
