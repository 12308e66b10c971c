"""Measured against printed numbers: level on noise, rounding, degrees of freedom; against scipy and by hand."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from engine.records.errors import InputError
from engine.stats.printed import against_printed, differing, noise_of
from engine.stats.uncertainty import two_sided_p

KINDS = {
    "published": pl.Float64, "half_unit": pl.Float64, "measured": pl.Float64, "log_measured": pl.Float64,
    "stderr": pl.Float64, "degrees": pl.Float64,
}  # fmt: skip


def cells(*rows):
    return pl.DataFrame(list(rows), schema=KINDS, orient="row")


def ratio(published, half, log_measured, stderr=None, degrees=math.inf):
    return (published, half, math.exp(log_measured), log_measured, stderr, degrees)


@pytest.mark.first_run("^8$")
@pytest.mark.parametrize("windows", [8, 64])
def test_noise_of_one_stored_error_passes_at_the_nominal_level(windows):
    """Each run measures 40 cells whose truth is what was printed, with errors from its own windows."""
    generator, per_cell, families, runs, count = np.random.default_rng(3), [], 0, 300, 40
    truth = generator.uniform(1.5, 9.0, size=count)
    for _ in range(runs):
        drawn = truth[:, None] + generator.normal(size=(count, windows))
        means, errors = drawn.mean(1), stats.sem(drawn, axis=1)
        rows = [
            ratio(math.exp(true), 1e-9, mean, error, windows - 1)
            for true, mean, error in zip(truth, means, errors, strict=True)
        ]
        found = against_printed(cells(*rows))
        per_cell += (2 * stats.t.sf(np.abs(found["z"].to_numpy()), windows - 1) <= 0.05).tolist()
        families += differing(found).height > 0
    assert np.mean(per_cell) == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / len(per_cell)))
    assert families / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert families > 0


def test_rounding_only_is_no_difference():
    generator = np.random.default_rng(0)
    truth = generator.uniform(4, 60, size=200)
    rows = [ratio(round(value, 1), 0.05, math.log(value), 1e-6) for value in truth]
    found = against_printed(cells(*rows))
    assert (found["z"] == 0).all()
    assert (found["p_holm"] == 1).all()
    shares = [(round(value, 2), 0.005, value, None, 1e-6, 20.0) for value in generator.uniform(0, 1, size=50)]
    found = against_printed(cells(*shares))
    assert (found["z"] == 0).all()
    assert found["log_ratio"].null_count() == 50


def test_z_is_the_distance_beyond_half_a_unit():
    above = ratio(10.0, 0.5, math.log(12.0), 0.1)
    below = ratio(10.0, 0.5, math.log(8.0), 0.1)
    share = (0.5, 0.01, 0.56, None, 0.02, 9.0)
    found = against_printed(cells(share, above, below))
    by_hand = [0.05 / 0.02, -math.log(9.5 / 8) / 0.1, math.log(12 / 10.5) / 0.1]
    assert found["z"].to_list() == pytest.approx(by_hand)  # the largest first
    assert found["log_ratio"].to_list() == [None, *(pytest.approx(math.log(one)) for one in (0.8, 1.2))]
    assert found["p_holm"][0] == pytest.approx(3 * 2 * stats.t.sf(2.5, 9))


def test_cells_without_an_error_come_last_and_by_size():
    small, large = ratio(10.0, 0.5, math.log(11.0)), ratio(10.0, 0.5, math.log(100.0))
    broken = (10.0, 0.5, math.nan, math.nan, None, math.inf)
    tested = ratio(10.0, 0.5, math.log(10.0), 0.1)
    found = against_printed(cells(small, broken, tested, large))
    assert found["z"].to_list() == [0.0, None, None, None]
    assert found["p_holm"].to_list() == [1.0, None, None, None]
    ratios = found["log_ratio"].to_list()
    assert math.isnan(ratios[1])
    assert ratios[2:] == pytest.approx([math.log(10), math.log(1.1)])


def test_noise_of_seeds_and_windows():
    one = noise_of([2.0], [0.1], 30)
    assert one == pytest.approx((0.1, 29))
    only_seeds = noise_of([1.0, 3.0, 2.0], [0.0, 0.0, 0.0], 30)
    assert only_seeds == pytest.approx((stats.sem([1.0, 3.0, 2.0]), 2))
    both = noise_of([1.0, 3.0], [1.0, 1.0], 11)  # e^2 = 1 + 2 / 2, degrees 4 / (1 / 10 + 1 / 1)
    assert both == pytest.approx((math.sqrt(2), 4 / 1.1))
    assert noise_of([2.0], [0.1], None) == pytest.approx((0.1, math.inf))
    for nothing in (([2.0], [None]), ([2.0], [0.0]), ([2.0], [math.nan])):
        assert noise_of(*nothing, 30) is None


@pytest.mark.parametrize("degrees", [1, 3.7, 63, math.inf])
def test_two_sided_p_against_scipy(degrees):
    for t in (-4.2, 0.0, 0.3, 6.0):
        known = stats.t(degrees) if math.isfinite(degrees) else stats.norm
        assert two_sided_p(t, degrees) == pytest.approx(2 * known.sf(abs(t)), rel=1e-9)
    with pytest.raises(InputError, match="degrees above 0"):
        two_sided_p(1.0, 0)
