"""Which values of a table that was made again hold: against a loop, and what is no number at all."""

import math

import numpy as np
import polars as pl
import pytest

from engine.results.tables import frame, spec
from engine.studies.same_numbers import apart, same_arrays, same_numbers

SWEEP = spec("sweep")
LINES = [
    ("a model", selector, seed, order, rate, int(100 * rate), nll, 0.01, 640, math.exp(nll))
    for selector, seed in (("random", 42), ("random", 43), ("lrp", None))
    for order in ("lerf", "morf")
    for rate, nll in ((0.0, 2.0), (0.3, 3.5))
]


def sweep(lines=LINES):
    return frame("sweep", lines)


def moved(table, column, line, value):
    values = table[column].to_list()
    values[line] = value
    return table.with_columns(pl.Series(column, values, dtype=table.schema[column]))


@pytest.mark.parametrize("bounded", [False, True])
def test_distances_are_those_of_a_loop(bounded):
    draw = np.random.default_rng(0)
    old = np.concatenate([draw.normal(size=40) * 10.0 ** draw.integers(-8, 8, size=40), [0, 0, np.inf, np.nan, 1, -2]])
    new = np.concatenate([old[:40] * (1 + 1e-4 * draw.normal(size=40)), [0, 1e-9, np.inf, np.nan, np.nan, -np.inf]])
    finite = sorted(abs(one) for one in old if math.isfinite(one))
    half = len(finite) // 2
    median = finite[half] if len(finite) % 2 else (finite[half - 1] + finite[half]) / 2
    expected = []
    for one, other in zip(old.tolist(), new.tolist(), strict=True):
        if one == other or (math.isnan(one) and math.isnan(other)):
            expected.append(0.0)
        elif not (math.isfinite(one) and math.isfinite(other)):
            expected.append(math.inf)
        else:
            expected.append(abs(other - one) / (1.0 if bounded else abs(one) + median))
    np.testing.assert_allclose(apart(old, new, bounded=bounded), expected, rtol=1e-12)


def test_the_same_table_holds_in_any_order_of_its_lines():
    held = same_numbers("sweep", sweep(), sweep().reverse(), SWEEP)
    assert held.holds
    assert (held.lines, held.furthest, held.differences) == (len(LINES), 0.0, ())
    assert held.values == len(LINES) * 5  # rows_removed, nll, nll_stderr, tokens, perplexity


def test_a_number_beyond_the_tolerance_is_named_with_its_line():
    stored = sweep()
    median = float(np.median(stored["nll"]))
    for factor, holds in ((0.9, True), (1.1, False)):
        again = moved(stored, "nll", 3, 3.5 + factor * 1e-3 * (3.5 + median))
        held = same_numbers("sweep", stored, again, SWEEP, 1e-3)
        assert held.holds is holds
        assert held.furthest == pytest.approx(factor * 1e-3)
    (wrong,) = held.differences
    assert (wrong.column, wrong.stored) == ("nll", 3.5)
    assert wrong.line == "selector=random, seed=42, order=morf, rate=0.3"


def test_counts_and_ids_must_be_equal():
    assert not same_numbers("sweep", sweep(), moved(sweep(), "tokens", 0, 641), SWEEP, 1.0).holds


def test_a_value_that_is_missing_on_one_side_does_not_hold():
    for stored, again in ((0.01, None), (None, 0.01)):
        old, new = moved(sweep(), "nll_stderr", 2, stored), moved(sweep(), "nll_stderr", 2, again)
        (wrong,) = same_numbers("sweep", old, new, SWEEP, 10.0).differences
        assert (wrong.stored, wrong.again, wrong.apart) == (stored, again, math.inf)
    both = moved(sweep(), "nll_stderr", 2, None)
    assert same_numbers("sweep", both, both, SWEEP).holds


def test_lines_that_only_one_has_are_counted():
    held = same_numbers("sweep", sweep(LINES[:-1]), sweep(LINES[2:]), SWEEP)
    assert (held.lines, held.lost, held.gained, held.holds) == (len(LINES) - 3, 2, 1, False)
    assert not same_numbers("sweep", sweep(), sweep([]), SWEEP).holds


def test_texts_hold_but_for_their_numerals():
    old = pl.DataFrame({"name": ["a", "b"], "reasons": ["p 0.012 is below .05", "no"]})
    for text, holds in (("p 1.3e-7 is below .05", True), ("p 0.012 is above .05", False)):
        again = old.with_columns(reasons=pl.Series([text, "no"]))
        assert same_numbers("own", old, again, None).holds is holds


def test_shares_are_compared_on_the_scale_of_one():
    """A tiny p may change by a factor, which a relative rule would call a difference."""
    keys = ("a model", "lrp", "ig", "attention", 0.3, None, None)
    about = spec("jaccard")
    columns = [one.name for one in about.columns if not one.optional]
    values = dict.fromkeys(columns) | {"jaccard": 1e-9}
    named = dict(zip(about.keys, keys, strict=False))
    old = pl.DataFrame([{**values, **named}])
    new = old.with_columns(jaccard=pl.lit(5e-4))
    assert same_numbers("jaccard", old, new, about, 1e-3).holds
    assert not same_numbers("jaccard", old, new, about, 1e-4).holds


@pytest.mark.parametrize("stem", ["mask_depth", "dangerous"])
def test_rows_of_a_mask_may_change_places_at_the_cut(stem):
    """The scores are another machine's: as many rows of the mask as the tolerance allows may be others."""
    about = spec(stem)
    column = "removed" if stem == "mask_depth" else "rows"
    named = [("lrp", 0.3, 0, "mlp"), ("lrp", 0.3, 1, "mlp"), ("lrp", 0.5, 0, "mlp"), ("ig", 0.3, 0, "mlp")]
    lines = [
        dict(zip(("selector", "rate", "block", "sublayer", column), (*one, rows), strict=True))
        for one, rows in zip(named, (1900, 100, 3900, 5), strict=True)
    ]
    fixed = {"model": "a model"} | ({"projection": "up_proj"} if stem == "mask_depth" else {})
    old = frame(stem, [fixed | line for line in lines])
    for line, rows, apart_by in ((1, 102, 2 / 2000), (1, 103, 3 / 2000), (2, 3904, 4 / 3900), (3, 6, 1 / 5)):
        held = same_numbers(stem, old, moved(old, column, line, rows), about, 1e-3)
        assert held.holds is (apart_by <= 1e-3)
        assert [one.apart for one in held.differences] == ([] if held.holds else [pytest.approx(apart_by)])


def test_arrays():
    draw = np.random.default_rng(1)
    old = {"lrp": draw.random(50).astype(np.float32), "random": draw.random((3, 50)).astype(np.float32)}
    assert same_arrays("scores", old, {name: values.copy() for name, values in old.items()}).holds
    new = {name: values.copy() for name, values in old.items()}
    new["random"][2, 7] += 0.5
    (wrong,) = same_arrays("scores", old, new).differences
    assert (wrong.column, wrong.line) == ("random", "row_id=7, number 3")
    assert not same_arrays("scores", old, {"lrp": old["lrp"]}).holds
    assert not same_arrays("scores", old, old | {"lrp": old["lrp"][:-1]}).holds
