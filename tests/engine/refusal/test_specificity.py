"""Controls have the right counts, and the gain's interval is the square-and-add of its parts."""

import math
from pathlib import Path

import numpy as np
import pytest
from refusal_helpers import rates, small_run
from scipy.stats import binomtest, t

from engine.edits.contrasts import refusal_mask
from engine.edits.control_edits import global_random
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.runner import LocalRunner
from engine.stats.uncertainty import student_t, wilson, wilson_of_rate
from engine.studies.refusal.points import GLOBAL, LAYER_MATCHED, control_edits, gain, measured_controls
from engine.studies.refusal.refusal_inputs import Rate


def rate(count: int, n: int = 100) -> Rate:
    return Rate(tuple(i < count for i in range(n)))


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_students_quantile_equals_its_closed_forms(confidence: float):
    """The distribution function can be inverted by hand for 1, 2 and 4 degrees of freedom (Shaw 2006)."""
    alpha = 1 - confidence**2
    q = math.cos(math.acos(math.sqrt(alpha)) / 3) / math.sqrt(alpha)
    assert student_t(1, confidence) == pytest.approx(math.tan(math.pi * confidence / 2), rel=1e-10)
    assert student_t(2, confidence) == pytest.approx(confidence * math.sqrt(2 / alpha), rel=1e-10)
    assert student_t(4, confidence) == pytest.approx(2 * math.sqrt(q - 1), rel=1e-10)


def test_wilson_of_a_rate_is_wilson_of_its_count():
    assert wilson_of_rate(0.25, 64) == pytest.approx(wilson(16, 64))
    low, high = wilson_of_rate(1 / 3, 100)
    assert wilson(33, 100).low < low < wilson(34, 100).low
    assert wilson(33, 100).high < high < wilson(34, 100).high


def test_one_control_gives_newcombes_interval():
    """Square-and-add of scipy's Wilson intervals; on Newcombe's own example (56/70 and 48/80) they give 0.0524."""
    difference, interval = gain(rate(56, 70), [rate(41, 70)])
    real, control = (binomtest(k, 70).proportion_ci(method="wilson") for k in (56, 41))
    assert difference == pytest.approx(15 / 70)
    assert interval.low == pytest.approx(difference - math.hypot(56 / 70 - real.low, control.high - 41 / 70))
    assert interval.high == pytest.approx(difference + math.hypot(real.high - 56 / 70, 41 / 70 - control.low))
    published = 0.2 - math.hypot(0.8 - wilson(56, 70).low, wilson(48, 80).high - 0.6)
    assert published == pytest.approx(0.0524, abs=5e-5)


def test_the_draw_of_masks_widens_the_interval():
    steady, wild = ([rate(40), rate(40), rate(40)], [rate(10), rate(40), rate(70)])
    same, narrow = gain(rate(90), steady)
    other, wide = gain(rate(90), wild)
    assert (same, other) == pytest.approx((0.5, 0.5))
    half = t.ppf(0.975, 2) * np.std([0.1, 0.4, 0.7], ddof=1) / math.sqrt(3)
    assert same - wide.low == pytest.approx(math.hypot(same - narrow.low, half), rel=1e-6)
    assert wide.high == 1.0  # cut


def test_the_interval_does_not_collapse_at_the_ends():
    difference, interval = gain(rate(100), [rate(0), rate(0)])
    assert difference == 1
    assert 0.9 < interval.low < 0.97
    assert interval.high == 1


def test_a_global_control_has_the_size_and_nothing_else():
    mask = np.array([3, 7, 8, 90])
    drawn = global_random(mask, 1000, seed=1)
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert len(drawn) == 4
    assert (drawn != global_random(mask, 1000, seed=2)).any()
    assert drawn.max() > 100  # it knows nothing of where the mask was


@pytest.mark.long
def test_controls_are_measured_under_their_own_masks(demo: LoadedModel, tmp_path: Path):
    with Store(tmp_path) as store:
        run = small_run(demo, store)
        mask = refusal_mask(run.contrasts[0], 0.5, 0.03)
        pairs = run.heldout["hate"]
        edit = run.edit(mask)
        cells = [cell for *_, one in control_edits(run, edit) for cell in (run.nll(one), run.on_pairs(one, pairs))]
        controls = measured_controls(run, LocalRunner(store).run(cells), edit, pairs)
        assert [(one.kind, one.seed) for one in controls] == [
            (LAYER_MATCHED, 42), (GLOBAL, 42), (LAYER_MATCHED, 43), (GLOBAL, 43),
        ]  # fmt: skip
        drawn = global_random(mask, demo.rows.n_rows, 43)
        with zeroed(demo, drawn):
            nll = negative_log_likelihood(demo, run.evaluation).nats_per_token
        assert controls[-1].nll == pytest.approx(nll, rel=1e-6)
        assert controls[-1].rates.malign == rates(run, drawn, pairs).malign
