"""Perplexity without some rows against random ones: every number against the plain measurement, steps, the store."""

import numpy as np
import pytest

from dashboard.chat import measure
from dashboard.chat.measure import Compared
from dashboard.pages.rows import brush
from engine.data.corpora import windows
from engine.edits.control_edits import global_random
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.stats.blocks import block_stderr


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    from tiny_models import load_tiny

    return load_tiny("llama", tmp_path_factory.mktemp("against"), max_position_embeddings=512)


@pytest.fixture(autouse=True)
def little_text(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "ALL_WINDOWS", 9)
    monkeypatch.setattr(measure, "FIRST", 2)
    monkeypatch.setattr(measure, "STEP", 4)
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))


def quiet(*_):
    pass


def test_every_number_is_that_of_the_plain_measurement(loaded):
    rows = np.arange(3, 60, 2)
    found = list(measure.compared(loaded, rows, quiet))
    assert [(one.windows, one.of, one.tokens) for one in found] == [(2, 9, 510), (6, 9, 1530), (9, 9, 2295)]
    for one in found:
        text = windows("demo", loaded.tokenizer, role="evaluation", samples=one.windows, length=256)
        results = []
        for mask in (np.arange(0), rows, *(global_random(rows, loaded.rows.n_rows, seed) for seed in (42, 43, 44))):
            with zeroed(loaded, mask):
                results.append(negative_log_likelihood(loaded, text))
        dense, edited, *random = [result.nats_per_token for result in results]
        # Batches of other sizes differ in the last bits of float32.
        assert one.dense == pytest.approx(dense, rel=1e-6)
        assert one.edited == pytest.approx(edited, rel=1e-6)
        assert one.random == pytest.approx(random, rel=1e-6)
        assert one.difference == pytest.approx(edited - np.mean(random), abs=1e-6)
        apart = np.array(results[1].window_nats) - np.mean([result.window_nats for result in results[2:]], axis=0)
        error, _ = block_stderr(apart, results[0].window_tokens, text.blocks)
        assert one.stderr == pytest.approx(error, rel=1e-3)
        assert one.rows == rows.size


def test_what_was_measured_before_a_stop_is_not_measured_again(loaded, monkeypatch):
    from engine.run import runner

    groups = []
    real = runner.measured_now
    monkeypatch.setattr(runner, "measured_now", lambda group: groups.append(group) or real(group))
    first = next(measure.compared(loaded, np.arange(9), quiet))
    before = len(groups)
    assert before
    again = measure.compared(loaded, np.arange(9), quiet)
    assert next(again) == first
    assert len(groups) == before
    assert next(again).windows == 6
    assert len(groups) > before


@pytest.mark.parametrize(("total", "ends"), [(1, [1]), (2, [2]), (3, [2, 3]), (11, [2, 6, 10, 11])])
def test_steps_cover_the_text_once(total, ends):
    found = list(measure.steps(total))
    assert [end for _, end in found] == ends
    assert [start for start, _ in found] == [0, *ends[:-1]]


@pytest.mark.parametrize(
    ("edited", "said"),
    [(3.5, "higher than without any of the 2"), (2.5, "lower than without any of the 2"), (3.05, "not on one side")],
)
def test_the_words_say_where_it_lies_among_the_draws_and_on_how_much_text(edited, said):
    one = Compared(7, 2, 9, 510, 2.0, edited, (3.0, 3.1), edited - 3.05, None)
    assert said in brush.verdict(one)
    assert "first 2 of 9 windows of 256 tokens" in brush.text_of(one)
    whole = Compared(7, 9, 9, 2295, 2.0, edited, (3.0, 3.1), edited - 3.05, 0.1)
    assert "the whole text: all 9 windows" in brush.text_of(whole)
