"""The interval of a mean over pairs of draws, against simulated draws and a jackknife written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from engine.stats.removal_order import over_draws


def test_it_is_the_jackknife_over_draws() -> None:
    means = (0.9, 0.8, 0.85, 0.7, 0.95, 0.6)
    values = {frozenset(pair): mean for pair, mean in zip(itertools.combinations("abcd", 2), means, strict=True)}
    without = [np.mean([value for pair, value in values.items() if one not in pair]) for one in "abcd"]
    stderr = np.std(without) * np.sqrt(3)  # (n - 1) / n of the sum of n squares
    half = scipy.stats.t.ppf(0.975, 3) * stderr
    mean = np.mean(list(values.values()))
    assert over_draws(list(values.values()), 4) == pytest.approx((mean - half, mean + half))
    assert over_draws([0.9], 2) == over_draws([0.9, float("nan"), 0.8], 3) == (None, None)


@pytest.mark.parametrize("draws", [3, 5])
def test_it_covers_the_mean_over_all_draws(draws: int) -> None:
    """Draws of one signal, whose length is 1, with noise: the mean product of two of them is 1."""
    generator, hits, trials = np.random.default_rng(draws), 0, 1000
    signal, pairs = np.full(100, 0.1), np.triu_indices(draws, 1)
    for _ in range(trials):
        drawn = signal + 0.05 * generator.standard_normal((draws, 100))
        low, high = over_draws((drawn @ drawn.T)[pairs].tolist(), draws)
        hits += low <= 1 <= high
    assert hits >= scipy.stats.binom.ppf(0.001, trials, 0.94)
