"""Short measurements on a model in memory: NLL before and after, giving up, tokens of rows."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from dashboard.chat import measure
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.stats.blocks import missed


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    from tiny_models import load_tiny

    return load_tiny("llama", tmp_path_factory.mktemp("measure"), max_position_embeddings=512)


def test_before_and_after_are_the_nll_of_the_same_windows(loaded):
    mask = np.arange(0, loaded.rows.n_rows, 3)
    seen = []
    change = measure.nll_change(loaded, mask, lambda *step: seen.append(step))
    tokens = measure.evaluation_windows(loaded)
    dense = negative_log_likelihood(loaded, tokens)
    with zeroed(loaded, mask):
        edited = negative_log_likelihood(loaded, tokens)
    assert change.tokens == 16 * 255
    assert change.dense == pytest.approx(dense.nats_per_token, rel=1e-6)
    assert change.edited == pytest.approx(edited.nats_per_token, rel=1e-6)
    by_window = [(b - a) / 255 for a, b in zip(dense.window_nats, edited.window_nats, strict=True)]
    assert change.difference == pytest.approx(np.mean(by_window), rel=1e-4)
    apart = [(np.array(four) - np.mean(by_window)).sum() for four in np.split(np.array(by_window), 4)]
    by_blocks = np.sqrt(np.square(apart).sum() * 4 / 3 * missed(4, 4)) / 16
    assert change.stderr == pytest.approx(by_blocks, rel=1e-3)
    assert {what for what, *_ in seen} == {f"Windows {n} to {n + 3}, edits" for n in (1, 5, 9, 13)}


@pytest.mark.parametrize("steps", [1, 5, 8])
def test_giving_up_leaves_weights_and_lock_as_they_were(loaded, steps):
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    left = [steps]

    def stop(*_):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure.nll_change(loaded, np.arange(50), stop)
    assert all(torch.equal(value, before[name]) for name, value in loaded.model.state_dict().items())
    with ThreadPoolExecutor(1) as other:  # its own thread may take the lock always
        assert other.submit(loaded.lock.acquire, blocking=False).result()
        other.submit(loaded.lock.release).result()
