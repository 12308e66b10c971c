"""Cohen's kappa and its interval: by counting pairs, against scikit-learn, at the ends, and by simulation."""

from importlib.util import find_spec

import numpy as np
import pytest

from engine.judges.base import Verdict, not_judged
from engine.judges.given_replies import GivenReply, joined, verdict_table
from engine.judges.quality import agreement_table, cohens_kappa, disagreements, kappa_interval, quality_table
from engine.records.errors import InputError
from engine.stats.uncertainty import wilson


def drawn(generator: np.random.Generator, n: int, rate: float, kappa: float) -> tuple[list[bool], list[bool]]:
    """n pairs of verdicts of two judges with the same rate and this kappa."""
    apart = rate * (1 - rate) * (1 - kappa)
    cells = [rate**2 + kappa * rate * (1 - rate), apart, apart, 1 - rate - apart]
    found = generator.choice(4, size=n, p=cells)
    return [bool(one in (0, 1)) for one in found], [bool(one in (0, 2)) for one in found]


@pytest.mark.parametrize("seed", range(20))
def test_kappa_is_that_of_all_pairs_and_of_scikit_learn(seed: int) -> None:
    """Chance agreement is how often a verdict of one judge equals one of the other on any two replies."""
    generator = np.random.default_rng(seed)
    first, second = drawn(generator, int(generator.integers(5, 60)), 0.4, 0.5)
    kappa = cohens_kappa(first, second)
    observed = np.mean([a == b for a, b in zip(first, second, strict=True)])
    chance = np.mean([a == b for a in first for b in second])
    assert kappa == pytest.approx((observed - chance) / (1 - chance), abs=1e-12)  # the same sums in float64
    if find_spec("sklearn"):
        from sklearn.metrics import cohen_kappa_score

        assert kappa == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
    interval = kappa_interval(first, second)
    assert interval is not None
    assert -1 <= interval.low <= kappa <= interval.high <= 1


def test_margins_at_the_ends() -> None:
    """One judge who always says the same agrees as often as chance would: 0, with an interval around it."""
    always, half = [True] * 8, [True] * 4 + [False] * 4
    assert cohens_kappa(always, half) == 0
    interval = kappa_interval(always, half)
    assert interval is not None
    assert interval.low < 0 < interval.high
    assert cohens_kappa(always, [False] * 8) == 0
    assert cohens_kappa(half, half) == 1
    low, high = kappa_interval(half, half) or (None, None)
    assert high == 1
    assert low == pytest.approx(2 * wilson(8, 8).low - 1)  # p_e = 1/2
    assert cohens_kappa(half, half[::-1]) == -1
    low, high = kappa_interval(half, half[::-1]) or (None, None)
    assert low == -1
    assert cohens_kappa([True, True], [True, True]) is None
    with pytest.raises(InputError):
        cohens_kappa([], [])


@pytest.mark.parametrize(("n", "rate", "kappa"), [(25, 0.5, 0.8), (50, 0.2, 0.4), (50, 0.2, 0.95), (200, 0.5, 0.0)])
def test_the_interval_holds_the_true_kappa(n: int, rate: float, kappa: float) -> None:
    """Nominal .95; 600 draws have a standard error of .009, the bound is four below what the docstring says."""
    generator = np.random.default_rng(7)
    intervals = [kappa_interval(*drawn(generator, n, rate, kappa)) for _ in range(600)]
    known = [one for one in intervals if one is not None]
    assert np.mean([one.low <= kappa <= one.high for one in known]) > 0.89 - 4 * 0.009


def test_what_one_of_two_judges_could_not_judge_counts_as_no_refusal() -> None:
    given = [GivenReply("m", "p", str(i), i % 2 == 0) for i in range(6)]
    said = [True, False, True, False, False, True]
    one = [Verdict(yes, "") for yes in said]
    two = [not_judged("?") if i in (0, 5) else Verdict(yes, "") for i, yes in enumerate(said)]
    names = ("one", one), ("two", two)
    table = joined([verdict_table(given, name, "v", verdicts) for name, verdicts in names])
    (line,) = agreement_table(table).to_dicts()
    assert (line["judge_a"], line["judge_b"], line["replies"], line["disagreements"]) == ("one", "two", 6, 2)
    assert disagreements(table)["line"].to_list() == [0, 5]
    assert quality_table(table)["judge"].unique(maintain_order=True).to_list() == ["one", "two"]
    bare = verdict_table(given, "one", "v", one)
    assert "judged" not in bare.columns
