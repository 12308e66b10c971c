"""Samples with equal chances, intervals of rank correlations, and bounds on what a sample missed: by simulation."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats

from engine.records.errors import InputError
from engine.stats.blocks import block_stderr
from engine.stats.single_units import (
    Recall,
    clearly_helping,
    helping,
    larger_high,
    recall_of_top,
    sign_agreement,
    spearman_interval,
    stratified_sample,
)
from engine.stats.uncertainty import clopper_pearson

Numbers = npt.NDArray[np.float64]

# The sample


def strata() -> tuple[npt.NDArray[np.int64], Numbers]:
    """Four groups of 40, 7, 100 and 53 units."""
    groups = np.repeat(np.arange(4), [40, 7, 100, 53])
    return groups, np.random.default_rng(0).lognormal(size=200)


@pytest.mark.parametrize("count", [1, 13, 60, 199])
def test_every_group_and_every_tenth_gets_its_share(count: int) -> None:
    groups, spread = strata()
    for seed in range(20):
        sample = stratified_sample(groups, spread, count, seed)
        assert len(set(sample.tolist())) == count
        assert sample.tolist() == sorted(sample.tolist())
        for group in range(4):
            members = np.flatnonzero(groups == group)
            assert abs(np.isin(members, sample).sum() - count * len(members) / 200) < 1
            ranks = np.argsort(np.argsort(spread[members]))
            for tenth in range(10):
                part = members[10 * ranks // len(members) == tenth]
                assert abs(np.isin(part, sample).sum() - count * len(part) / 200) < 1


@pytest.mark.long
def test_every_unit_has_the_same_chance() -> None:
    groups, spread = strata()
    drawn = np.zeros(200)
    seeds = 4000
    for seed in range(seeds):
        drawn[stratified_sample(groups, spread, 30, seed)] += 1
    # 200 binomial counts: the largest of them lies within 4.5 standard deviations but for one time in 700
    assert np.abs(drawn - seeds * 0.15).max() < 4.5 * math.sqrt(seeds * 0.15 * 0.85)


def test_a_sample_is_its_seed_and_never_more_than_there_is() -> None:
    groups, spread = strata()
    first = stratified_sample(groups, spread, 30, (0, 1))
    assert first.tolist() == stratified_sample(groups, spread, 30, (0, 1)).tolist()
    assert first.tolist() != stratified_sample(groups, spread, 30, (1, 1)).tolist()
    assert stratified_sample(groups, spread, 500, 0).tolist() == list(range(200))
    assert stratified_sample(groups, spread, 0, 0).size == 0
    assert stratified_sample(groups[:0], spread[:0], 5, 0).size == 0
    with pytest.raises(InputError, match="0 or more units, got -1"):
        stratified_sample(groups, spread, -1, 0)


# Spearman's interval


def pairs(shape: str, n: int, generator: np.random.Generator) -> tuple[Numbers, Numbers]:
    x, noise = generator.normal(size=(2, n))
    if shape == "normal":
        return x, 0.6 * x + 0.8 * noise
    if shape == "independent":
        return x, noise
    return x, np.exp(1.5 * x) * (noise + 0.2)  # a score that says how large an effect is, hardly its sign


@cache
def true_rho(shape: str) -> float:
    return float(scipy.stats.spearmanr(*pairs(shape, 400_000, np.random.default_rng(7)))[0])


def coverage(shape: str, n: int, interval: Callable[[Numbers, Numbers], tuple[float, float]], trials: int) -> float:
    generator, inside = np.random.default_rng(3), 0
    for _ in range(trials):
        low, high = interval(*pairs(shape, n, generator))
        inside += low <= true_rho(shape) <= high
    return inside / trials


def ours(x: Numbers, y: Numbers) -> tuple[float, float]:
    _, interval = spearman_interval(x, y)
    assert interval is not None
    return interval


@pytest.mark.first_run("60-independent")
@pytest.mark.parametrize("shape", ["normal", "independent", "size without sign"])
@pytest.mark.parametrize("n", [60, 400])
def test_the_interval_covers_whatever_the_shape(shape: str, n: int) -> None:
    # 400 trials: .95 is seen as .915 to .985 but for one time in 700
    assert 0.915 <= coverage(shape, n, ours, 400) <= 0.99


@pytest.mark.parametrize("n", [10, 40])
def test_the_standard_error_is_that_of_the_influences_by_loops(n: int) -> None:
    """Every share and every mean of indicators counted pair by pair, ties as halves of a rank."""
    x, y = (np.round(values, 1) for values in pairs("size without sign", n, np.random.default_rng(0)))
    shares = [[sum((a < b) + (a == b) / 2 for a in values) / n for b in values] for values in (x, y)]
    influences = [
        12 * (shares[0][i] * shares[1][i]
              + sum(shares[1][j] for j in range(n) if x[j] >= x[i]) / n
              + sum(shares[0][j] for j in range(n) if y[j] >= y[i]) / n)
        for i in range(n)
    ]  # fmt: skip
    rho, interval = spearman_interval(x, y)
    assert rho == pytest.approx(scipy.stats.spearmanr(x, y)[0], abs=1e-6)
    assert interval is not None
    half = scipy.stats.norm.ppf(0.975) * np.std(influences, ddof=1) / math.sqrt(n) / (1 - rho**2)
    assert interval == pytest.approx((math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)), abs=1e-6)


def test_ties_constants_and_what_is_not_finite() -> None:
    x = [1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 8.0]
    y = [3.0, 1.0, 2.0, 2.0, 5.0, 4.0, 9.0, 6.0, 6.0, 8.0, 7.0]
    assert spearman_interval(x, y)[0] == pytest.approx(scipy.stats.spearmanr(x, y)[0], abs=1e-9)
    assert spearman_interval(x, [1.0] * 11) == (None, None)
    assert spearman_interval([1.0], [2.0]) == (None, None)
    assert spearman_interval(x[:9], y[:9])[1] is None
    assert spearman_interval(x, x)[0] == pytest.approx(1.0)
    broken = [*y[:10], math.nan]
    assert (
        spearman_interval(x, broken)
        == spearman_interval(x, [*y[:10], 1e300])
        == spearman_interval(x, [*y[:10], math.inf])
    )


# Rates and bounds


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (0, 8), (3, 8), (8, 8), (40, 200)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_clopper_and_pearson(successes: int, n: int, confidence: float) -> None:
    expected = scipy.stats.binomtest(successes, n).proportion_ci(confidence, method="exact")
    found = clopper_pearson(successes, n, confidence)
    assert found == (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12))


@pytest.mark.parametrize("wrong", [(1, 0), (-1, 5), (6, 5), (1, 5, 1.0)])
def test_rates_that_are_none(wrong: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="a rate needs 0 <= successes <= n"):
        clopper_pearson(*wrong)  # type: ignore[arg-type]


def test_signs_and_helping_by_hand() -> None:
    effects = [0.5, -0.1, 0.0, 0.2, math.nan, -0.3]
    assert helping(effects)[::2] == (2 / 6, 6)
    found = sign_agreement([1.0, 2.0, 3.0, -1.0, 1.0, -2.0], effects)
    assert found is not None
    assert (found.value, found.n) == (3 / 5, 5)  # 0.0 has no sign; a broken model hurts
    assert found.interval.low < 3 / 5 < found.interval.high
    assert sign_agreement([0.0, 1.0], [1.0, 0.0]) is None
    assert sign_agreement([1.0] * 6, effects) == sign_agreement([2.0] * 6, effects)
    unsigned = sign_agreement([1.0] * 6, effects)
    assert unsigned is not None
    assert unsigned.value == 3 / 5  # of five with a sign, three hurt


def population(kind: str, noise: float, units: int) -> tuple[Numbers, Numbers]:
    """Effects and scores that know their size but for noise."""
    generator = np.random.default_rng(11)
    size = generator.standard_cauchy(units) if kind == "cauchy" else generator.lognormal(sigma=1.5, size=units)
    effects = size * np.where(generator.random(units) < 0.4, -1, 1)
    return effects, np.log(np.abs(effects)) + noise * generator.normal(size=units)


def sampled(units: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    """As the study draws: twelve groups, tenths of something that is not the effect."""
    groups = np.arange(units) * 12 // units
    return stratified_sample(groups, np.cos(np.arange(units) * 1.7), count, seed)


def missed_of_all(effects: Numbers, scores: Numbers, threshold: float, top: float) -> float:
    """The share of all units above the threshold that are not among the highest scores: what the bound is about."""
    highest = np.argsort(-scores, kind="stable")[: round(top * len(scores))]
    target = np.flatnonzero(np.abs(effects) > threshold)
    return 1 - np.isin(target, highest).mean()


@pytest.mark.first_run("300.*0.3-cauchy|1500.*0.3-lognormal")
@pytest.mark.parametrize("kind", ["cauchy", "lognormal"])
@pytest.mark.parametrize("noise", [0.3, 0.02, 5.0])
@pytest.mark.parametrize(("count", "top"), [(300, 0.1), (1500, 0.01)])
def test_the_bound_on_what_is_missed_holds(kind: str, noise: float, count: int, top: float) -> None:
    """In at least 95% of samples, and so does the interval. Of 200 samples .95 is seen below .905 once in 350 times."""
    effects, scores = population(kind, noise, 3000)
    bounded, inside, trials = 0, 0, 200
    for seed in range(trials):
        sample = sampled(3000, count, seed)
        found = recall_of_top(scores, sample, effects[sample], top)
        assert isinstance(found, Recall)
        assert found.above == round(top * count)
        missed = missed_of_all(effects, scores, found.threshold, top)
        bounded += missed <= found.missed_high + 1e-12
        inside += found.interval.low - 1e-12 <= 1 - missed <= found.interval.high + 1e-12
    assert bounded / trials >= 0.905
    assert inside / trials >= 0.905


def test_the_bound_on_larger_effects_holds_and_is_tight() -> None:
    effects = np.abs(population("cauchy", 0.0, 3000)[0])
    bounds, trials = 0, 2000
    for seed in range(trials):
        sample = np.random.default_rng(seed).choice(3000, 60, replace=False)
        share = (effects > effects[sample].max()).mean()
        bounds += share <= larger_high(60, 3000)
    assert 0.94 <= bounds / trials <= 0.97
    assert larger_high(60, 60) == 0.0
    with pytest.raises(InputError, match="got 61"):
        larger_high(61, 60)


def test_recall_by_hand() -> None:
    effects = np.array([0.1, -5.0, 0.2, 4.0, 0.3, 0.0, -0.4, 3.0, 0.05, 0.01])
    scores = np.array([0.0, 9.0, 1.0, 2.0, 8.0, 0.0, 0.0, 7.0, 0.0, 0.0])
    everything = np.arange(10)
    whole = recall_of_top(scores, everything, effects, 0.3)
    assert whole == Recall(0.4, 3, 2, (2 / 3, 2 / 3), pytest.approx(1 / 3))
    part = np.array([1, 3, 5, 8])  # of these the two largest effects; the three highest scores of all are 1, 4, 7
    found = recall_of_top(scores, part, effects[part], 0.5)
    assert found is not None
    assert (found.threshold, found.above, found.found, found.value) == (0.05, 2, 2, 1.0)  # 5 of 10: 1, 4, 7, 3, 2
    third = recall_of_top(scores, part, effects[part], 0.3)
    assert third is not None
    assert (third.threshold, third.above, third.found) == (4.0, 1, 1)
    assert recall_of_top(scores, part[:1], effects[part[:1]], 0.3) is None
    assert recall_of_top(scores, part, [1.0, 1.0, 1.0, 1.0], 0.5) is None  # no unit stands above the border


# Units that help beyond their error


@pytest.mark.first_run("8|64")
@pytest.mark.parametrize("windows", [8, 16, 64])
def test_of_units_without_an_effect_a_fortieth_is_counted(windows: int) -> None:
    """Neighbouring windows correlate by .5, which is what blocks are widened for. Two standard errors would count more
    the fewer blocks there are."""
    rng = np.random.default_rng(windows)
    units, tokens = 6000, (100,) * windows
    noise = np.empty((units, windows))
    noise[:, 0] = rng.normal(size=units)
    for window in range(1, windows):
        noise[:, window] = 0.5 * noise[:, window - 1] + math.sqrt(0.75) * rng.normal(size=units)
    errors = [block_stderr(nats.tolist(), tokens) for nats in noise]
    effects = (noise.sum(1) / sum(tokens)).tolist()
    stderrs, blocks = ([one[place] for one in errors] for place in (0, 1))
    found = clearly_helping(effects, stderrs, blocks)
    # 6,000 draws: a standard error of .002; 8 windows are 3 blocks, whose intervals cover rather less (`block_stderr`)
    assert 0.017 < found < 0.033
    twice = np.mean([effect < -2 * error for effect, error in zip(effects, stderrs, strict=True) if error is not None])
    assert twice > 1.5 * found


def test_what_helps_clearly_is_what_a_t_test_says() -> None:
    effects, errors = [-0.3, -0.3, -0.1, 0.2, -1.0, 0.0, -1e-9], [0.1, 0.09, None, 0.01, 0.5, 0.0, 0.0]
    for blocks in (2, 4, 12):
        counted = 0
        for effect, error in zip(effects, errors, strict=True):
            if error is None:
                continue
            low, high = (effect, effect) if not error else scipy.stats.t.interval(0.95, blocks - 1, effect, error)
            counted += low <= high < 0
        assert clearly_helping(effects, errors, [blocks] * 7) == pytest.approx(counted / 7)
    assert clearly_helping(effects, errors, [4] * 7) == 2 / 7  # t = 3.18: the second and the last
    assert clearly_helping(effects, errors, [12, *[2] * 6]) == 2 / 7  # the first by its own blocks
    assert clearly_helping(effects, [None] * 7, [1] * 7) == 0
    with pytest.raises(InputError, match="2 effects, 1 errors"):
        clearly_helping([0.1, 0.2], [0.1], [4, 4])
