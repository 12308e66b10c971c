"""Wilson's interval against scipy's."""

import pytest
from scipy.stats import binomtest

from engine.records.errors import InputError
from engine.stats.uncertainty import wilson


@pytest.mark.parametrize("confidence", [0.95, 0.8])
@pytest.mark.parametrize(("successes", "n"), [(0, 1), (0, 64), (1, 64), (7, 64), (63, 64), (64, 64), (500, 1319)])
def test_equals_scipy(successes: int, n: int, confidence: float) -> None:
    expected = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert wilson(successes, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_stays_inside_the_unit_interval_at_the_ends() -> None:
    assert wilson(0, 10).low == 0.0
    assert wilson(10, 10).high == 1.0


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5), (1, -1)])
def test_refuses_what_is_no_rate(successes: int, n: int) -> None:
    with pytest.raises(InputError, match="successes"):
        wilson(successes, n)


def test_refuses_a_percentage() -> None:
    with pytest.raises(InputError, match=r"0\.95"):
        wilson(1, 2, 95)
