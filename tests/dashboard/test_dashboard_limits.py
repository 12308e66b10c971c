"""Words that depend on a number: what is said at the limit itself, and right beside it."""

import math

import polars as pl
import pytest

from dashboard.charts import believed, curves as differences, refusal_rates, single_effects as singles
from engine.stats.limits import Thresholds

JUST_ABOVE = math.nextafter(0.05, 1)


def ranked(p: float, p_holm: float) -> str:
    line = {"rank": 1, "draws": 19, "excess": 0.4, "excess_low": 0.3, "excess_high": 0.5, "p": p, "p_holm": p_holm}
    return refusal_rates.told(line | {"tests": 1})


def best(single: tuple[float, float], sets: tuple[float, float]) -> str:
    """The heading where LRP is best on single rows, with one interval, and IG on sets, with another."""
    rows = [("lrp", 0.8, *single, 2.6), ("ig", 0.3, *sets, 2.4)]
    names = ["selector", "single", "low", "high", "lerf_nll"]
    return singles.finding(pl.DataFrame(rows, schema=names, orient="row"), "row")


def drawn(low: float, high: float) -> str:
    """The mark of a selector whose masks overlap between draws with this interval; stable from 0.8."""
    line = {"selector": "lrp", "draw_jaccard": 0.8, "damage": 0.4, "lerf_nll": 2.0, "validity": "", "stability": ""}
    draws = pl.DataFrame([{"selector": "lrp", "rate": 0.3, "jaccard_low": low, "jaccard_high": high}])
    symbol = believed.quadrant(pl.DataFrame([line]), "draw_jaccard", 0.8, Thresholds(), draws).data[0].marker.symbol
    return "not decided" if symbol.endswith("-open") else "filled"


@pytest.mark.parametrize(
    ("said", "at_limit", "beside_it", "words"),
    [
        (lambda p: str(differences.apart({"p_holm": p})), 0.05, JUST_ABOVE, "True"),
        (lambda p: ranked(0.01, p), 0.05, JUST_ABOVE, "do not reach this by search alone"),
        (lambda p: ranked(p, 0.2), 0.05, JUST_ABOVE, "by itself"),
        (lambda low: best((low, 0.9), (-0.1, 0.1)), 0.0, 1e-9, "told from chance"),
        (lambda high: best((0.5, 0.9), (0.1, high)), 0.5, 0.5 - 1e-9, "not told apart"),
        (lambda high: drawn(0.7, high), 0.8, 0.8 - 1e-9, "not decided"),
        (lambda low: drawn(low, 0.9), 0.8, 0.8 - 1e-9, "filled"),
    ],
    ids=["difference", "draws, by Holm", "draws, by itself", "single rows", "rulers", "upper end", "lower end"],
)  # fmt: skip
def test_the_limit_belongs_to_one_side(said, at_limit, beside_it, words):
    assert words in said(at_limit)
    assert words not in said(beside_it)
