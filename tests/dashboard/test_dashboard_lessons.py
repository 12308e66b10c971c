"""The lessons: every answer can be the right one, and it is the numbers that decide."""

import math

import numpy as np
import polars as pl
import pytest
from synthetic import stability

from dashboard.charts import learn as learn_chart, series
from dashboard.pages.learn import steps as lesson_answers
from engine.results.tables import frame

UNMASKED = 2.0
POINT = {
    "unedited_malign": 0.1, "edited_malign": 0.9, "unedited_benign": 0.0, "edited_benign": 0.1,
    "control_malign": 0.12, "control_malign_max": 0.2, "perplexity_factor": 1.04,
}  # fmt: skip


def curve(lerf, morf=None, rates=(0.1, 0.3)):
    """Points of one selector: nats above the unmasked model per unit of rate."""
    rows = [
        ("made-up", "lrp", None, order, rate, 1, UNMASKED + slope * rate, 0.1, 100, None, False)
        for order, slope in (("lerf", lerf), ("morf", morf))
        if slope is not None
        for rate in rates
    ]
    names = "model selector seed order rate rows_removed nll nll_stderr tokens printed plateau".split()  # noqa: SIM905
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return series.points(frame, "made-up", ["lrp"], ["lerf", "morf"], (0.0, 1.0))


def test_outputs_are_a_matrix_product_without_one_row():
    weights = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
    given, before, after = lesson_answers.outputs(weights, 2)
    assert given.tolist() == np.random.default_rng(0).standard_normal(6).tolist()
    by_hand = [sum(float(w) * float(x) for w, x in zip(line, given, strict=True)) for line in weights]
    assert before.tolist() == pytest.approx(by_hand)
    assert after.tolist() == pytest.approx([*by_hand[:2], 0, by_hand[3]])


def test_zeroing_a_row_changes_its_output_only():
    weights = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
    settled = lesson_answers.settle_row(weights, 2)
    assert settled.answer == "a"
    assert "Of 4 outputs, 1 differs" in settled.why


@pytest.mark.parametrize(("factor", "answer"), [(1.5, "a"), (3.0, "b"), (6.0, "c"), (1e9, "c")])
def test_the_factor_of_the_perplexity_decides(factor, answer):
    settled = lesson_answers.settle_zero(curve(math.log(factor) / 0.3), UNMASKED)
    assert settled.answer == answer
    assert f"{factor:.3g} times" in settled.why


@pytest.mark.parametrize(
    ("lerf", "morf", "answer"), [(1.0, 20.0, "a"), (5.0, 5.2, "b"), (20.0, 1.0, "c"), (0.0, 0.0, "b")]
)
def test_the_harm_under_both_orders_decides(lerf, morf, answer):
    settled = lesson_answers.settle_orders(curve(lerf, morf), "lrp", UNMASKED)
    assert settled.answer == answer
    assert settled.why.startswith("LRP at 10%")


def gaps(log_gaps, rates=(0.1, 0.3)):
    rows = [
        ("made-up-1B", name, None, rate, 2.0, 2.0 + gap, math.exp(2.0), math.exp(2.0 + gap),
         math.exp(2.0 + gap) - math.exp(2.0), gap, 0.1)
        for name, gap in log_gaps.items() for rate in rates
    ]  # fmt: skip
    return frame("gap", rows)


@pytest.mark.parametrize(
    ("spearman", "gap", "answer"),
    [
        ({"lrp": 0.95, "wanda": 0.999}, {"lrp": 6.0, "wanda": 0.3}, "b"),
        ({"lrp": 0.95, "wanda": 0.999}, {"lrp": 6.0, "wanda": 5.0}, "a"),
        ({"lrp": 0.95, "wanda": 0.5}, {"lrp": 6.0, "wanda": 0.3}, "a"),
        ({"lrp": 0.5, "wanda": 0.6}, {"lrp": 6.0, "wanda": 0.3}, ""),
    ],
)
def test_a_stable_ranking_with_a_small_gap_decides(spearman, gap, answer):
    both = lesson_answers.stability_and_gap(stability(spearman), gaps(gap))
    assert both["rate"].unique().to_list() == [0.3]
    assert dict(both.select("selector", "spearman").iter_rows()) == spearman  # of the smallest size
    assert dict(both.select("selector", "log_gap").iter_rows()) == gap
    assert lesson_answers.settle_stability(both).answer == answer


@pytest.mark.parametrize(
    ("changes", "answer"),
    [({}, "b"), ({"edited_benign": 0.7}, "a"), ({"edited_malign": 0.4}, "c"), ({"edited_benign": 0.3}, "")],
)
def test_refusals_after_the_edit_decide(changes, answer):
    settled = lesson_answers.settle_install({**POINT, **changes})
    assert settled.answer == answer
    assert "4.0%" in settled.why


@pytest.mark.parametrize(
    ("control", "strongest", "answer", "cautious"),
    [
        (0.12, 0.2, "a", False), (0.05, 0.1, "a", False), (0.5, 0.55, "b", False), (0.8, 0.85, "c", False),
        (0.2, 0.9, "a", True),
    ],
)  # fmt: skip
def test_the_share_of_the_effect_that_controls_reach_decides(control, strongest, answer, cautious):
    settled = lesson_answers.settle_control({**POINT, "control_malign": control, "control_malign_max": strongest})
    assert settled.answer == answer
    assert ("single draws" in settled.why) is cautious


@pytest.mark.parametrize("row", [0, 5, 39])
@pytest.mark.parametrize("zeroed", [False, True])
def test_a_row_stands_between_its_inputs_and_its_output_and_nothing_is_drawn_over_it(row, zeroed):
    values = np.random.default_rng(0).standard_normal((40, 24)).astype(np.float32)
    numbers, *outs = lesson_answers.outputs(values, row)
    figure = learn_chart.weights(values, row, numbers, outs[zeroed], zeroed=zeroed)
    given, near, made = (np.asarray(trace.customdata) for trace in figure.data)
    rows = list(figure.data[1].y)
    assert len(rows) <= 7  # large enough to be seen
    assert given.tolist() == [numbers.tolist()]
    assert made[:, 0].tolist() == outs[zeroed][rows].tolist()
    for place, one in enumerate(rows):
        assert near[place].tolist() == (values[one] * (one != row or not zeroed)).tolist()
    for edge in figure.layout.shapes:
        assert (edge.y0, edge.y1, edge.fillcolor) == (row - 0.5, row + 0.5, None)
