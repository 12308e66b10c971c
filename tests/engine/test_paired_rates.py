"""McNemar's test against scipy, Newcombe's interval against printed examples and by its coverage over all tables."""

import numpy as np
import pytest
from scipy.stats import binomtest, multinomial

from engine.records.errors import InputError
from engine.stats.blocks import PairedRates, paired_rates


def test_counts_of_two_lists():
    before = [True, True, False, False, False, True]
    after = [True, False, True, True, False, True]
    found = paired_rates(before, after)
    assert (found.yes_yes, found.yes_no, found.no_yes, found.no_no) == (2, 1, 2, 1)
    assert found.difference == pytest.approx(np.mean(after) - np.mean(before))
    with pytest.raises(InputError, match="same prompts twice, got 1 and 2"):
        paired_rates([True], [True, False])


@pytest.mark.parametrize(("yes_no", "no_yes"), [(0, 0), (0, 1), (3, 3), (1, 9), (40, 12), (0, 100)])
def test_mcnemar_is_the_exact_binomial_test(yes_no: int, no_yes: int):
    found = PairedRates(7, yes_no, no_yes, 11)
    expected = binomtest(no_yes, no_yes + yes_no, 0.5).pvalue if no_yes + yes_no else 1.0
    assert found.mcnemar_p == pytest.approx(expected, rel=1e-12)


def test_a_printed_example():
    """Complete response before and after consolidation (Cavo 2012), as Fagerland, Lydersen and Laake's R package
    contingencytables prints it: -.0621 (-.1186 to -.0046) for before minus after with 6 and 16 changed of 161."""
    found = PairedRates(59, 16, 6, 80)
    assert found.difference == pytest.approx(-0.0621, abs=5e-5)
    assert found.interval == pytest.approx((-0.1186, -0.0046), abs=5e-5)


@pytest.mark.parametrize("counts", [(3, 4, 9, 30), (0, 0, 5, 10), (10, 2, 0, 0), (0, 6, 7, 0)])
def test_the_interval_turns_with_the_sides(counts: tuple[int, ...]):
    yes_yes, yes_no, no_yes, no_no = counts
    low, high = PairedRates(*counts).interval
    assert low <= PairedRates(*counts).difference <= high
    assert PairedRates(yes_yes, no_yes, yes_no, no_no).interval == pytest.approx((-high, -low))
    assert PairedRates(no_no, no_yes, yes_no, yes_yes).interval == pytest.approx((-high, -low))


@pytest.mark.parametrize("truth", [(0.3, 0.02, 0.28, 0.4), (0.05, 0.01, 0.14, 0.8), (0.5, 0.1, 0.1, 0.3)])
def test_coverage_over_all_tables_of_twenty_prompts(truth: tuple[float, ...]):
    n, covered = 20, 0.0
    wanted = truth[2] - truth[1]
    for yes_yes in range(n + 1):
        for yes_no in range(n + 1 - yes_yes):
            for no_yes in range(n + 1 - yes_yes - yes_no):
                counts = (yes_yes, yes_no, no_yes, n - yes_yes - yes_no - no_yes)
                low, high = PairedRates(*counts).interval
                covered += (low <= wanted <= high) * multinomial.pmf(counts, n, truth)
    assert 0.93 < covered < 0.995  # nominal .95; conservative where few prompts change


@pytest.mark.parametrize("level", [0.05, 0.05 / 28])
def test_the_smallest_difference_that_would_be_told_against_every_split(level: float) -> None:
    """By scipy's binomial test of every split of as many changed prompts."""
    for changed in range(40):
        told = [
            abs(changed - 2 * x) / 50
            for x in range(changed + 1)
            if changed and binomtest(x, changed, 0.5).pvalue <= level
        ]
        assert PairedRates(10, changed, 0, 40 - changed).detectable(level) == (min(told) if told else None)
