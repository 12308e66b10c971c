"""Errors of windows that follow each other: blocks, Student's t with several parts, and what the intervals cover."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from engine.measures.nll import NegativeLogLikelihood
from engine.records.errors import InputError
from engine.stats.blocks import block_stderr, missed, neighbour_correlation, ratio_stderr, window_blocks
from engine.stats.layer_matched import JointPart, against_controls, fieller
from engine.stats.uncertainty import Part, draw_part, estimate, seed_parts, text_part
from engine.studies.estimate_words import better_or_worse

TRIALS = 4000


def neighbours(generator: np.random.Generator, trials: int, windows: int, correlation: float) -> np.ndarray:
    """Stationary AR(1) noise of variance 1: each window's correlation with the next is `correlation`."""
    fresh = generator.normal(size=(trials, windows))
    noise = np.empty_like(fresh)
    noise[:, 0] = fresh[:, 0]
    for place in range(1, windows):
        noise[:, place] = correlation * noise[:, place - 1] + math.sqrt(1 - correlation**2) * fresh[:, place]
    return noise


def covered(values: np.ndarray, *, independent: bool = False) -> float:
    """How often the 95% interval of the mean holds 0. independent: by the errors that take windows as such."""
    hits = 0
    for one in values:
        tokens = [1] * len(one)
        error, count = block_stderr(one.tolist(), tokens)
        part = text_part([error], [count])
        if independent:
            part = text_part([ratio_stderr(one.tolist(), tokens)], [None])
        found = estimate(float(one.mean()), [part])
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0 <= found.high
    return hits / len(values)


@pytest.mark.long
@pytest.mark.parametrize(
    ("windows", "correlation"),
    [(16, 0.4), (16, 0.5), (16, 0.6), (64, 0.0), (64, 0.4), (64, 0.6), (256, 0.0), (256, 0.5), (256, 0.6)],
)
def test_intervals_from_blocks_hold_the_truth_as_often_as_they_say(windows: int, correlation: float) -> None:
    """Lag-1 correlations as seen between paired windows; 4,000 trials know a share of 95% to 0.7 points."""
    noise = neighbours(np.random.default_rng(windows + round(100 * correlation)), TRIALS, windows, correlation)
    assert 0.925 <= covered(noise) <= 0.97


@pytest.mark.parametrize(("windows", "least"), [(16, 0.88), (64, 0.92), (256, 0.94)])
def test_blocks_grow_where_neighbours_correlate_more_than_was_seen(windows: int, least: float) -> None:
    """Neighbours that correlate by .8: 2,000 trials, and blocks of the usual length hold the truth less often."""
    noise = neighbours(np.random.default_rng(windows), 2000, windows, 0.8)
    share = covered(noise)
    usual = window_blocks(windows)
    sums = np.add.reduceat(noise, usual.edges[:-1], axis=1) - noise.mean(1, keepdims=True) * np.diff(usual.edges)
    n = usual.number
    error = np.sqrt(np.square(sums).sum(1) * n / (n - 1) * usual.widening) / windows
    fixed = np.mean(abs(noise.mean(1)) <= scipy.stats.t.isf(0.025, n - 1) * error)
    assert least <= share <= 0.97
    assert share > fixed + 0.005


def test_the_correlation_of_neighbours_is_found_without_the_bias_of_short_series() -> None:
    for windows, true in ((64, 0.7), (256, 0.8)):
        noise = neighbours(np.random.default_rng(windows), 1000, windows, true)
        tokens = [7.0] * windows
        found = [neighbour_correlation((7 * one + 3).tolist(), tokens) for one in noise]
        assert np.mean(found) == pytest.approx(true, abs=0.02)
        assert {round(100 * one) / 100 for one in found} == set(found)
    assert neighbour_correlation([1.0, 2.0, 3.0], [1.0] * 3) == 0.5  # too few to say
    assert neighbour_correlation([2.0] * 64, [1.0] * 64) == 0.5  # nothing varies
    assert neighbour_correlation([*range(64)], [1.0] * 64) == 0.95


def test_windows_taken_as_independent_cover_far_less() -> None:
    noise = neighbours(np.random.default_rng(0), 1000, 64, 0.5)
    assert covered(noise, independent=True) < 0.8


def test_blocks_are_contiguous_and_hold_every_window_once() -> None:
    for count in (1, 2, 5, 7, 8, 12, 31, 64, 65, 100):
        sums = window_blocks(count).sums([2.0**place for place in range(min(count, 50))] + [0.0] * max(0, count - 50))
        assert math.fsum(sums) == 2.0 ** min(count, 50) - 1
    sizes = {1: 1, 2: 2, 5: 3, 16: 4, 32: 5, 64: 6, 128: 8, 256: 10}
    assert {count: window_blocks(count).number for count in sizes} == sizes
    assert window_blocks(128).sums([1.0] * 128) == [16.0] * 8
    assert window_blocks(0).sums([]) == []


@pytest.mark.parametrize(("length", "number", "correlation"), [(4, 4, 0.5), (4, 8, 0.5), (1, 2, 0.5), (8, 8, 0.3)])
def test_what_blocks_miss_is_what_the_whole_covariance_says(length: int, number: int, correlation: float) -> None:
    """From the matrix of all windows' correlations, block sums by a matrix of ones and zeros."""
    count = length * number
    whole = correlation ** np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    sums = np.kron(np.eye(number), np.ones(length))
    of_blocks = sums @ whole @ sums.T
    mean = np.ones(number) / number
    spread = (np.trace(of_blocks) - number * mean @ of_blocks @ mean) / (number - 1)  # expected sample variance
    assert missed(length, number, correlation) == pytest.approx(mean @ of_blocks @ mean / (spread / number))
    assert missed(length, number, 0.0) == 1.0


def test_equal_blocks_are_the_t_test_of_their_means() -> None:
    values = np.random.default_rng(3).normal(0.1, 1, 128)
    tokens = [255] * 128
    wider, blocks = block_stderr((values * 255).tolist(), tokens)
    assert wider is not None
    error = wider / math.sqrt(window_blocks(128).widening)
    test = scipy.stats.ttest_1samp(values.reshape(8, 16).mean(1), 0)
    found = estimate(float(values.mean()), [text_part([error], [blocks])])
    assert values.mean() / error == pytest.approx(test.statistic, rel=1e-12)
    assert found.p_differs == pytest.approx(test.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9)
    assert block_stderr([3.0], [4]) == (None, 1)


def test_several_parts_are_welchs_interval() -> None:
    """Satterthwaite's degrees against scipy's: two means with parts of their own."""
    generator = np.random.default_rng(4)
    a, b = generator.normal(0, 1, 5), generator.normal(1, 3, 9)
    parts = [Part(float(x.var(ddof=1)) / len(x), len(x) - 1) for x in (a, b)]
    found = estimate(float(a.mean() - b.mean()), parts)
    test = scipy.stats.ttest_ind(a, b, equal_var=False)
    assert found.degrees == pytest.approx(test.df, rel=1e-12)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9)
    assert found.p_differs == pytest.approx(test.pvalue, rel=1e-9)


def test_few_seeds_and_few_draws_are_covered_too() -> None:
    """Draws x blocks x seeds: text shared by all, one calibration draw behind the number, three seeds averaged."""
    generator = np.random.default_rng(5)
    hits = 0
    trials = 3000
    text = neighbours(generator, trials, 128, 0.5) * 0.5
    for one in text:
        seeds = generator.normal(0, 0.1, 3)
        draws = generator.normal(0, 0.05, 6)  # the first is the calibration text in use
        error, blocks = block_stderr(one.tolist(), [1] * 128)
        value = one.mean() + seeds.mean() + draws[0]
        parts = [text_part([error] * 3, [blocks] * 3), *seed_parts(seeds.tolist(), [1, 2, 3])]
        found = estimate(float(value), [*parts, *draw_part(draws[1:].tolist())])
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0 <= found.high
    assert 0.93 <= hits / trials <= 0.985  # Satterthwaite's approximation is rather too wide with 2 degrees


def test_what_is_not_known_is_not_made_up() -> None:
    assert text_part([0.1, None], [8, 8]) is None
    assert text_part([0.1, math.nan], [8, 8]) is None
    assert estimate(1.0, [Part(0.1, 3), None]) == (1.0, None, None, None, None, 1)
    assert estimate(math.nan, [Part(0.1, 3)]).low is None
    assert estimate(1.0, [Part(0.0, 3)]) == (1.0, 0.0, math.inf, 1.0, 1.0, 1)
    assert [estimate(value, [Part(0.0, 3)]).p_differs for value in (1.0, -1.0, 0.0)] == [0.0, 0.0, 1.0]
    assert estimate(1.0, [None]).p_differs is None
    assert seed_parts([1.0], [42]) == []
    assert draw_part([1.0]) == []
    assert estimate(-1.96, [Part(1.0, math.inf)]).p_differs == pytest.approx(0.05, rel=1e-3)
    with pytest.raises(InputError, match="at least one part"):
        estimate(1.0, [])


def test_two_factors_of_seeds_are_two_parts() -> None:
    values = [1.0, 2.0, 3.0, 2.0, 3.0, 4.0]
    first, second = seed_parts(values, [1, 1, 1, 2, 2, 2], [7, 8, 9] * 2)
    assert first == (np.var([2.0, 3.0], ddof=1) / 2, 1)
    assert second == (np.var([1.5, 2.5, 3.5], ddof=1) / 3, 2)


# The share that depths explain


def test_fieller_is_the_inverted_t_test() -> None:
    """Every ratio on a fine grid that a t-test of a - q b does not reject, against the closed form."""
    parts = [JointPart(0.02, 0.01, 0.03, 7), JointPart(0.005, 0.005, 0.005, 2)]
    found = fieller(0.8, 2.0, parts)
    assert found is not None
    ratios = np.linspace(-1, 2, 200_001)
    variance = sum(part.var_a - 2 * ratios * part.cov + ratios**2 * part.var_b for part in parts)
    here = [part.along(0.4) for part in parts]
    degrees = sum(p.variance for p in here) ** 2 / sum(p.variance**2 / p.degrees for p in here)
    kept = ratios[np.abs(0.8 - ratios * 2.0) <= scipy.stats.t.ppf(0.975, degrees) * np.sqrt(variance)]
    assert found == pytest.approx((kept[0], kept[-1]), abs=2e-5)  # one step of the grid
    assert fieller(0.8, 0.1, parts) is None  # not clearly different from 0: the set has no ends
    assert fieller(0.8, math.inf, parts) is None
    assert fieller(0.8, 0.0, parts) is None


def made_up(generator: np.random.Generator, share: float, controls: int = 5) -> tuple[list, list, list]:
    """Own mask at 2 nats, random ones at 3 on average, controls at 3 - share; text and seeds noisy."""
    text = neighbours(generator, 1, 64, 0.5)[0] * 0.2

    def of(mean: float, alone: float) -> NegativeLogLikelihood:
        noise = text + neighbours(generator, 1, 64, 0.5)[0] * alone
        return NegativeLogLikelihood(tuple(((mean + noise) * 255).tolist()), (255,) * 64)

    own = [of(2.0, 0.05)]
    matched = [of(3 - share + generator.normal(0, 0.05), 0.05) for _ in range(controls)]
    random = [of(3 + generator.normal(0, 0.1), 0.05) for _ in range(10)]
    return own, [matched], random


@pytest.mark.long
@pytest.mark.parametrize("share", [0.0, 0.8])
def test_the_shares_interval_covers_it(share: float) -> None:
    generator, hits, trials = np.random.default_rng(6), 0, 600
    for _ in range(trials):
        found = against_controls(*made_up(generator, share), "lerf")
        assert found.share_interval is not None
        hits += found.share_interval.low <= share <= found.share_interval.high
    assert 0.92 <= hits / trials <= 0.99  # 600 trials know it to 2 points


@pytest.mark.long
def test_a_selector_like_its_controls_is_called_different_at_the_level() -> None:
    generator, called, trials = np.random.default_rng(7), 0, 600
    for _ in range(trials):
        _, ([own, *others],), random = made_up(generator, 1.0, controls=6)
        # one more draw of its depths, which is what a mask that knows nothing about rows is
        found = against_controls([own], [others], random, "lerf").difference
        called += better_or_worse(found.value, found.p_differs, "lerf") != "no difference seen"
    assert called / trials <= 0.075  # 5% and two standard errors


def test_numbers_are_plain_means_and_signs_follow_the_order() -> None:
    own, controls, random = made_up(np.random.default_rng(8), 0.4)
    for order, sign in (("lerf", 1), ("morf", -1)):
        found = against_controls(own, controls, random, order)
        nll = {
            name: np.mean([one.nats_per_token for one in some])
            for name, some in (("l", own), ("c", controls[0]), ("r", random))
        }
        assert found.difference.value == pytest.approx(nll["l"] - nll["c"], rel=1e-12)
        assert found.advantage.value == pytest.approx(sign * (nll["r"] - nll["l"]), rel=1e-12)
        assert found.control_advantage == pytest.approx(sign * (nll["r"] - nll["c"]), rel=1e-12)
        if order == "lerf":
            assert found.depth_share == pytest.approx((nll["r"] - nll["c"]) / (nll["r"] - nll["l"]), rel=1e-12)
            gap = np.array(own[0].window_nats) - np.mean([one.window_nats for one in controls[0]], axis=0)
            alike = neighbour_correlation(gap.tolist(), [255.0] * 64)
            edges = [0, 11, 21, 32, 43, 53, 64]
            assert window_blocks(64, alike).edges == tuple(edges)
            sums = np.array([gap[a:b].sum() for a, b in itertools.pairwise(edges)])
            rest = sums - found.difference.value * 255 * np.diff(edges)
            assert found.stderr_blocks == pytest.approx(
                math.sqrt((rest**2).sum() * 6 / 5 * missed(10, 6, alike)) / (64 * 255), rel=1e-9
            )
            seeds = np.var([one.nats_per_token for one in controls[0]], ddof=1) * (1 + 1 / 5)
            assert found.difference.stderr == pytest.approx(math.hypot(found.stderr_blocks or 0, math.sqrt(seeds)))
        else:  # the mask does less harm than random: under MoRF that is no advantage, and no share of it
            assert (found.depth_share, found.share_interval) == (None, None)
    assert [better_or_worse(-1.0, p, order) for p in (0.04, 0.06, None) for order in ("lerf", "morf")] == [
        "better", "worse", *["no difference seen"] * 4,
    ]  # fmt: skip
