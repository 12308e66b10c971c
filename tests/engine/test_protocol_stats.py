"""Who is ahead, and how surely: against scipy and loops, on noise with correlated windows; areas; claims in words."""

import itertools
import math
import statistics

import numpy as np
import polars as pl
import pytest
import scipy.stats

from engine.records.errors import InputError
from engine.results.tables import frame
from engine.stats.blocks import window_blocks
from engine.stats.protocol_harm import Area, Harm, area, compare, difference, integrated
from engine.studies.protocols.protocol_claims import claim_of, claims, name, summary, where

TOKENS = 15


def harm(*windows: float | list[float]) -> Harm:
    sums = np.atleast_2d(np.array(windows, dtype=np.float64))
    return Harm(sums, (TOKENS,) * sums.shape[1])


def neighbours(generator: np.random.Generator, shape: tuple[int, ...], correlation: float) -> np.ndarray:
    """Normal numbers, along the last axis each correlated with the one before."""
    noise = generator.normal(size=shape)
    for place in range(1, shape[-1]):
        before, own = noise[..., place - 1], noise[..., place]
        noise[..., place] = correlation * before + math.sqrt(1 - correlation**2) * own
    return noise


def test_a_difference_is_the_paired_t_test_over_blocks() -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.normal(30, 3, size=128) for _ in range(2))
    found = difference(harm(a.tolist()), harm(b.tolist()))
    means = [values.reshape(8, 16).sum(1) / (16 * TOKENS) for values in (a, b)]
    expected = scipy.stats.ttest_rel(*means)
    assert found.value == pytest.approx(float((a - b).mean()) / TOKENS)
    wider = math.sqrt(window_blocks(128).widening)  # beyond the test: neighbouring blocks are not independent
    assert found.p_differs == pytest.approx(2 * scipy.stats.t.sf(abs(expected.statistic) / wider, 7), rel=1e-9)
    assert found.degrees == pytest.approx(7)
    assert found.stderr == pytest.approx(wider * scipy.stats.sem(means[0] - means[1]), rel=1e-9)


def test_seeds_add_their_variance_and_satterthwaites_degrees() -> None:
    generator = np.random.default_rng(1)
    random, own = generator.normal(30, 3, size=(3, 128)), generator.normal(28, 3, size=128)
    found = difference(harm(*random.tolist()), harm(own.tolist()))
    apart = (random.mean(0) - own).reshape(8, 16).sum(1) / (16 * TOKENS)
    text = window_blocks(128).widening * statistics.variance(apart) / 8
    seeds = statistics.variance(random.sum(1) / (128 * TOKENS)) / 3
    degrees = (text + seeds) ** 2 / (text**2 / 7 + seeds**2 / 2)
    assert found.stderr == pytest.approx(math.sqrt(text + seeds), rel=1e-9)
    assert found.degrees == pytest.approx(degrees, rel=1e-9)
    t = found.value / math.sqrt(text + seeds)
    assert found.p_differs == pytest.approx(2 * scipy.stats.t.sf(abs(t), degrees), rel=1e-9)


def test_what_has_no_error_is_a_tie() -> None:
    one = compare({"a": harm([1.0]), "b": harm([2.0])}, "lerf")
    assert [(pair.p, pair.first) for pair in one] == [(None, None)]
    equal = compare({"a": harm([1.0, 2.0, 3.0]), "b": harm([1.0, 2.0, 3.0])}, "lerf")
    assert [(pair.p, pair.first) for pair in equal] == [(1.0, None)]
    broken = compare({"a": harm([1.0, math.inf]), "b": harm([math.inf, math.inf]), "c": harm([1.0, 2.0])}, "lerf")
    assert [pair.first for pair in broken] == [None] * 3
    with pytest.raises(InputError, match="same windows"):
        difference(harm([1.0, 2.0]), harm([1.0]))


def test_less_harm_is_ahead_under_lerf_and_more_under_morf() -> None:
    generator = np.random.default_rng(2)
    windows = generator.normal(30, 1, size=32)
    harms = {"good": harm(windows.tolist()), "bad": harm((windows + 9 + generator.normal(size=32)).tolist())}
    for order, first in (("lerf", "good"), ("morf", "bad")):
        for given in (harms, dict(reversed(harms.items()))):
            [pair] = compare(given, order)
            assert pair.first == first
            assert pair.p is not None
            assert pair.p < 1e-3


@pytest.mark.long
@pytest.mark.parametrize(("windows", "correlation"), [(32, 0.0), (16, 0.0), (64, 0.5), (16, 0.5)])
def test_on_noise_a_protocol_decides_anything_in_one_of_twenty_at_most(windows: int, correlation: float) -> None:
    """Six selectors that are the same, 15 pairs; the harm that all share cancels."""
    generator, wrong, trials = np.random.default_rng(3), 0, 400
    for _ in range(trials):
        shared = 5 * neighbours(generator, (windows,), correlation)
        own = neighbours(generator, (6, windows), correlation)
        found = compare({str(i): harm((50 + shared + own[i]).tolist()) for i in range(6)}, "lerf")
        wrong += any(pair.first for pair in found)
    # At most 5%, within 400 trials.
    assert wrong / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)


def test_an_integral_is_numpys_trapezoid_over_the_harm_above_the_unedited_models() -> None:
    generator = np.random.default_rng(4)
    unedited = harm(generator.normal(30, 1, size=8).tolist())
    curves = [Harm(unedited.sums + generator.random((2, 8)) * scale, unedited.tokens) for scale in (1, 2, 5)]
    found = integrated([0.5, 0.1, 0.3], [curves[2], curves[0], curves[1]], unedited)
    for seed in range(2):
        for window in range(8):
            heights = [0.0, *(float(one.sums[seed, window] - unedited.sums[0, window]) for one in curves)]
            expected = np.trapezoid(heights, [0.0, 0.1, 0.3, 0.5]) / 0.5
            assert found.sums[seed, window] == pytest.approx(expected)


def noisy(generator: np.random.Generator, seeds: int, windows: int, level: float, spread: float) -> Harm:
    draws = level + spread * generator.normal(size=(seeds, 1))
    return harm(*(draws + 0.5 * generator.normal(size=(seeds, windows))).tolist())


@pytest.mark.parametrize(("truth", "seeds"), [(0.0, 1), (1.5, 1), (0.0, 3)])
def test_the_interval_of_an_area_covers_the_truth(truth: float, seeds: int) -> None:
    """MoRF lies `truth` times random's harm of 4 above LeRF; seeds are drawn with a spread of their own."""
    generator, covered, trials = np.random.default_rng(5), 0, 400
    for _ in range(trials):
        spread = 0.3 if seeds > 1 else 0.0
        lerf, chance = noisy(generator, seeds, 32, 1.0, spread), noisy(generator, 3, 32, 4.0, 0.2)
        found = area(lerf, noisy(generator, seeds, 32, 1.0 + 4 * truth, spread), chance)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert covered / trials >= 0.95 - 2.5 * math.sqrt(0.05 * 0.95 / trials)
    assert covered / trials < 1


def test_an_area_that_cannot_be_told_is_none() -> None:
    one, two = harm([1.0, 2.0, 3.0]), harm([3.0, 5.0, 4.0])
    assert area(one, two, harm([-1.0, 0.0, 1.0])) == Area(None, None, None)
    assert area(one, harm([math.inf, 1.0, 1.0]), two) == Area(None, None, None)
    alone = area(harm([1.0]), harm([3.0]), harm([4.0]))
    assert alone == Area(pytest.approx(0.5), None, None)
    assert area(one, one, two).value == 0.0


# --- claims ---------------------------------------------------------------------------------------------------------

KEYS = ("intervention", "unit_kind", "metric", "order", "rate")
MATRIX = list(itertools.product(("zero", "mean"), ("row", "head"), ("nll", "kl"), ("lerf", "morf"), (0.1, 0.3)))


def lines(ahead: dict[str, list[str | None]], p: float = 1e-3) -> pl.DataFrame:
    """`protocols_pairs`: per pair "a b" who is ahead under each protocol, all with one p_holm."""
    found = []
    for pair, firsts in ahead.items():
        for protocol, first in zip(MATRIX, firsts, strict=True):
            found.append(("m", *protocol, *pair.split(), 1.0, 2.0, -1.0, 0.1, 7.0, p / 10, p, first))
    return frame("protocols_pairs", found)


def test_claims_in_words() -> None:
    heads = [protocol[1] == "head" and protocol[3] == "morf" for protocol in MATRIX]
    table = claims(
        lines(
            {
                "lrp wanda": ["lrp"] * 32,
                "ig lrp": [None if one else "lrp" for one in heads],
                "ig wanda": ["wanda" if one else "ig" for one in heads],
                "ig random": [None] * 32,
            }
        )
    )
    assert table.select("selector_a", "selector_b", "claim_verdict", "protocols_for", "from_paper").rows() == [
        ("lrp", "wanda", "all", 32, True), ("lrp", "ig", "unopposed", 24, True),
        ("ig", "wanda", "overturned", 24, True), ("ig", "random", "undecided", 0, False),
    ]  # fmt: skip
    assert table["claim"].to_list() == [
        "lrp before wanda: 32 of 32.",
        "lrp before ig: 24 of 32, tied: 8.",
        "ig before wanda: 24 of 32, wanda before ig: 8 (only with unit head, order morf).",
        "ig and random: none of 32 protocols tells them apart.",
    ]
    assert (table["protocols_for"] + table["protocols_against"] + table["protocols_tied"] == 32).all()
    assert table["overturned_by"][0] is None
    assert table["overturned_by"][2].split("; ")[0] == "zero heads, NLL, MoRF 10%"
    assert summary(table) == (
        "Of 4 pairs of selectors, 1 stand in the same order under all 32 protocols, 1 wherever a protocol shows a "
        "difference; 1 stand one way under some protocols and the other way under others, 0 perhaps do, and for 1 no "
        "protocol shows a difference. Flip rate: 33% of the pairs that any protocol puts in order."
    )


def test_what_chance_could_do_among_so_many_protocols_overturns_nothing() -> None:
    """p_holm of .01 is sure in one protocol, and .01 times 32 is not."""
    table = claims(lines({"a b": ["b", *["a"] * 31]}, p=0.01))
    assert table["claim_verdict"].to_list() == ["contested"]
    assert table["claim"].to_list() == [
        "a before b: 31 of 32, b before a: 1 (zero rows, NLL, LeRF 10%), none of these sure among so many protocols."
    ]
    assert "0 stand one way under some protocols and the other way under others, 1 perhaps do" in summary(table)


def test_the_papers_protocol_makes_the_claim_and_else_the_most() -> None:
    every = lines({"a b": ["b"] * 32}).to_dicts()
    paper = next(
        place for place, line in enumerate(every) if [line[key] for key in KEYS] == ["zero", "row", "nll", "lerf", 0.3]
    )
    every[paper]["ahead"] = "a"
    claim = claim_of("a", "b", every)
    assert (claim.a, claim.from_paper, claim.held, len(claim.against)) == ("a", True, 1, 31)
    assert claim.sentence.startswith("a before b: 1 of 32, b before a: 31 (over every intervention,")
    every[paper]["ahead"] = None
    claim = claim_of("a", "b", every)
    assert (claim.a, claim.from_paper, claim.held, claim.ties, claim.word) == ("b", False, 31, 1, "unopposed")


def test_few_protocols_are_named() -> None:
    every = lines({"a b": ["a"] * 32}).to_dicts()
    assert name(every[-1]) == "mean heads, KL, MoRF 30%"
    assert where(every[:2], every) == "zero rows, NLL, LeRF 10%; zero rows, NLL, LeRF 30%"
    assert where(every[1::2], every) == "only with rate 30%"
