"""Ranking and masks against brute force, with ties."""

import numpy as np
import pytest

from engine.edits.control_edits import layer_matched
from engine.edits.masks import checked_mask, parse_rate, removed_rows
from engine.models.row_index import Layer, RowIndex
from engine.records.errors import InputError
from engine.stats.removal_order import removal_order, removed_first

TIED = np.array([3.0, 1.0, 2.0, 1.0, 3.0, 0.0, 1.0], dtype=np.float32)


def brute_force(scores, order, rate):
    """Sort (score, row id) pairs; the slow and literal definition."""
    sign = 1 if order == "lerf" else -1
    ranked = sorted(range(len(scores)), key=lambda row: (sign * float(scores[row]), row))
    return sorted(ranked[: round(rate * len(scores))])


def index(*sizes):
    layers, start = [], 0
    for number, size in enumerate(sizes):
        layers.append(Layer(number, f"layers.{number}.mlp.up_proj", number, "mlp", "up_proj", start, size))
        start += size
    return RowIndex(tuple(layers))


def test_order_with_ties_by_hand():
    assert removal_order(TIED, "lerf").tolist() == [5, 1, 3, 6, 2, 0, 4]
    assert removal_order(TIED, "morf").tolist() == [0, 4, 2, 1, 3, 6, 5]


@pytest.mark.parametrize("order", ["lerf", "morf"])
@pytest.mark.parametrize("rate", [0, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.999, 1])
def test_masks_equal_brute_force(order, rate):
    generator = np.random.default_rng(7)
    for size in (1, 2, 13, 200):
        scores = generator.integers(0, 9, size).astype(np.float32)  # many ties
        assert removed_rows(scores, order, rate).tolist() == brute_force(scores, order, rate)


@pytest.mark.parametrize("order", ["lerf", "morf"])
def test_a_lower_rate_removes_a_subset(order):
    scores = np.random.default_rng(1).integers(0, 5, 500).astype(np.float32)
    previous: set[int] = set()
    for rate in np.linspace(0, 1, 21):
        mask = set(removed_rows(scores, order, rate).tolist())
        assert previous <= mask
        previous = mask


def test_all_scores_equal_removes_exactly_k_lowest_ids():
    assert removed_rows(np.zeros(1000, np.float32), "morf", 0.3).tolist() == list(range(300))


def test_extreme_scores_keep_their_order():
    scores = np.array([3e38, -3e38, 1e-45, 0.0, -0.0], dtype=np.float32)
    assert removal_order(scores, "lerf").tolist() == [1, 3, 4, 2, 0]
    assert removal_order(scores, "morf").tolist() == [0, 2, 3, 4, 1]


def test_non_finite_scores_are_an_error():
    with pytest.raises(InputError, match="1 of 3 scores are not finite, the first at row 1"):
        removal_order([0.0, float("nan"), 1.0], "lerf")


@pytest.mark.parametrize(("text", "rate"), [("0.3", 0.3), ("30%", 0.3), (" 5 % ", 0.05), ("1", 1.0), ("0", 0.0)])
def test_rates_as_people_write_them(text, rate):
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["30", "-0.1", "101%", "nan", "a third", "inf"])
def test_wrong_rates(text):
    with pytest.raises(InputError, match="write 0.3 or 30%"):
        parse_rate(text)


def test_layer_matched_keeps_the_count_of_every_layer_and_nothing_else():
    rows = index(50, 70, 30)
    real = np.array([0, 1, 2, 55, 119, 120, 149])
    control = layer_matched(real, rows, seed=3)
    counts = [int(((control >= layer.start) & (control < layer.start + layer.rows)).sum()) for layer in rows.layers]
    assert counts == [3, 2, 2]
    assert len(set(control.tolist())) == len(real)
    assert control.tolist() == layer_matched(real, rows, seed=3).tolist()
    assert control.tolist() != layer_matched(real, rows, seed=4).tolist()


def test_layer_matched_draws_uniformly():
    """Every row of a layer is drawn about equally often: 2 of 10 rows, 500 seeds, expected 100 +- 5 sigma."""
    rows = index(10)
    counts = np.zeros(10)
    for seed in range(500):
        counts[layer_matched([0, 9], rows, seed)] += 1
    assert np.abs(counts - 100).max() < 5 * np.sqrt(500 * 0.2 * 0.8)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([1, 1], "row id 1 is in the mask twice"),
        ([-1, 2], "row id -1 is outside"),
        ([10], "row id 10 is outside"),
        ([0.5], "list of row ids"),
    ],
)
def test_wrong_masks(mask, message):
    with pytest.raises(InputError, match=message):
        checked_mask(mask, 10)


@pytest.mark.parametrize("order", ["lerf", "morf"])
@pytest.mark.parametrize(
    "scores",
    [
        TIED, np.zeros(5), np.array([0.0, -0.0, 1.0, -0.0, -1.0]), np.array([3, 0, 255, 255, 1, 0], dtype=np.uint8),
        np.array([1e-300, -1e300, 5e-324, 1e300, 0.0]), np.float32([1, 1 + 1e-7, 1, 1 - 1e-7]),
        np.float16([0.1, 0.2, 0.1, 0.1]), np.random.default_rng(3).integers(0, 40, 500),
    ],
)  # fmt: skip
def test_what_goes_first_without_sorting_is_the_head_of_the_order(order, scores):
    whole = removal_order(scores, order)
    for count in range(scores.size + 2):
        assert removed_first(scores, order, count).tolist() == sorted(whole[:count].tolist())


def test_what_goes_first_has_the_errors_of_the_order():
    for wrong in (np.array([1.0, np.nan]), np.zeros((2, 2)), np.array(1.0)):
        with pytest.raises(InputError) as first:
            removal_order(wrong, "lerf")
        with pytest.raises(InputError) as second:
            removed_rows(wrong, "lerf", 0.5)
        assert str(first.value) == str(second.value)
    with pytest.raises(InputError, match="unknown order"):
        removed_first(TIED, "lref", 1)


@pytest.mark.parametrize("order", ["lerf", "morf"])
def test_the_order_of_float32_scores_is_that_of_a_stable_sort(order):
    """Every kind of finite float32: both zeros, numbers too small to be normal, both signs, many ties."""
    generator = np.random.default_rng(11)
    odd = np.float32([0.0, -0.0, 1e-45, -1e-45, 1e-39, -1e-39, 3.4e38, -3.4e38, 1.0, -1.0, np.pi])
    bits = generator.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    for scores in (
        generator.choice(odd, 3_000), bits[np.isfinite(bits)], np.float32(generator.integers(-3, 3, 4_000)),
        generator.choice(odd, 3_000)[::3], np.zeros(0, np.float32),
    ):  # fmt: skip
        keys = scores.astype(np.float64) * (1 if order == "lerf" else -1)
        assert removal_order(scores, order).tolist() == np.argsort(keys, kind="stable").tolist()
