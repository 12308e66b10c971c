"""Numbers for people, from ordinary ones to those that overflow."""

import math

import pytest

from dashboard.charts import formats

LN10 = math.log(10)


@pytest.mark.parametrize(
    ("perplexity", "text"),
    [(16.5, "16.5"), (9.9996, "10"), (1234.4, "1,234"), (9999.0, "9,999"), (35_800, "3.58×10⁴"),
     (7.16e38, "7.16×10³⁸")],
)  # fmt: skip
def test_perplexity(perplexity, text):
    assert formats.perplexity(math.log(perplexity)) == text


def test_perplexity_never_overflows():
    assert formats.perplexity(5000.0) == "2.97×10²¹⁷¹"  # exp(5000); a float64 ends at 1.8e308
    assert formats.perplexity(math.inf) == "∞"
    assert formats.perplexity(math.nan) == formats.perplexity(None) == "–"


@pytest.mark.parametrize(("upper", "lower"), [(3.0, 2.0), (2.0, 3.0), (12.0, 2.0), (90.0, 89.5)])
def test_difference_equals_the_direct_one(upper, lower):
    text = formats.perplexity_difference(upper, lower)
    superscript = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹−", "0123456789-")
    number = float(text.translate(superscript).replace("×10", "e").replace(",", ""))
    assert number == pytest.approx(math.exp(upper) - math.exp(lower), rel=6e-3)  # three digits


def test_difference_beyond_float64():
    assert formats.perplexity_difference(2000 * LN10, 1.0) == "1.00×10²⁰⁰⁰"
    assert formats.perplexity_difference(1.0, 2000 * LN10) == "−1.00×10²⁰⁰⁰"
    assert formats.perplexity_difference(2.0, 2.0) == "0"
    assert formats.perplexity_difference(math.inf, 2.0) == "–"


def test_ticks_counts_rates():
    assert [formats.power_tick(x) for x in (0, 1 + math.log10(2), 3, 38)] == ["1", "20", "1,000", "10<sup>38</sup>"]
    assert [formats.count(n) for n in (950, 7680, 376_832, 1_376_256)] == ["950", "7,680", "377k", "1.38M"]
    assert [formats.rate(r) for r in (0.3, 0.075, 0.005, 1.0)] == ["30%", "7.5%", "0.5%", "100%"]


@pytest.mark.parametrize(
    ("model", "title"),
    [
        ("/home/someone/models/my-1B", "my-1B"), ("/home/someone/my-1B/", "my-1B"), ("~/my-1B", "my-1B"),
        ("../runs/my-1B", "my-1B"), (r"C:\models\my-1B", "my-1B"), (r"\\host\share\my-1B", "my-1B"),
        ("organisation/my-1B", "organisation/my-1B"), ("demo", "demo"), ("/", "/"),
    ],
)  # fmt: skip
def test_a_path_is_no_title(model, title):
    assert formats.model_title(model) == title
