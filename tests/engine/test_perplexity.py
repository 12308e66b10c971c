"""NLL against an independent computation, uniform logits, padding, chunks and scipy's standard error."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from window_nll import window_nll

from engine.measures import predictions
from engine.measures.nll import NegativeLogLikelihood, negative_log_likelihood, perplexity, token_nll


def independent_nll(model, ids):
    """float64 log-softmax by scipy, one sequence and one position at a time."""
    total = 0.0
    with torch.no_grad():
        for position in range(1, len(ids)):
            logits = model(input_ids=ids[None, :position]).logits[0, -1].double().numpy()
            total -= scipy.special.log_softmax(logits)[int(ids[position])]
    return total


def test_against_an_independent_computation(tiny_family, tiny_windows):
    ids = tiny_windows.input_ids[:2, :9]
    sums, counts = window_nll(tiny_family.model, ids)
    assert counts.tolist() == [8, 8]
    # float32 logits of one whole window against prefixes run one by one
    np.testing.assert_allclose(sums, [independent_nll(tiny_family.model, row) for row in ids], rtol=1e-5)


def test_uniform_logits_give_the_vocabulary_size(tiny_llama, tiny_windows, monkeypatch):
    """A head of zeros predicts every token alike: perplexity is exactly the number of tokens."""
    head = tiny_llama.model.get_output_embeddings()
    vocabulary, _width = head.weight.shape
    monkeypatch.setattr(head, "forward", lambda hidden: hidden.new_zeros((*hidden.shape[:-1], vocabulary)))
    result = negative_log_likelihood(tiny_llama, tiny_windows)
    assert result.perplexity == pytest.approx(vocabulary, rel=1e-6)
    assert result.stderr == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(tiny_family, tiny_windows, side):
    ids = tiny_windows.input_ids[:1, :7]
    pads = torch.full((1, 4), 5)
    ones, zeros = torch.ones_like(ids), torch.zeros_like(pads)
    padded = torch.cat([pads, ids] if side == "left" else [ids, pads], 1)
    mask = torch.cat([zeros, ones] if side == "left" else [ones, zeros], 1)
    plain, count = window_nll(tiny_family.model, ids)
    with_pads, padded_count = window_nll(tiny_family.model, padded, mask)
    assert padded_count.tolist() == count.tolist()
    torch.testing.assert_close(with_pads, plain, rtol=1e-5, atol=1e-5)


def test_chunks_of_the_loss_change_nothing(monkeypatch):
    logits, targets = torch.randn(2, 7, 11), torch.randint(11, (2, 7))
    whole = token_nll(logits, targets)
    monkeypatch.setitem(predictions.SOFTMAX_BUDGET, "cpu", 25)  # two positions at a time
    monkeypatch.setattr(predictions, "LEAST_ROWS", 1)
    assert torch.equal(token_nll(logits, targets), whole)


def test_standard_error_is_that_of_the_window_means():
    nats = [10.0, 12.5, 9.0, 14.0]
    result = NegativeLogLikelihood(tuple(nats), (5, 5, 5, 5))
    assert result.stderr == pytest.approx(scipy.stats.sem(np.array(nats) / 5))
    assert result.nats_per_token == pytest.approx(45.5 / 20)


def test_perplexity_never_overflows():
    assert perplexity(1000.0) == math.inf
    assert perplexity(math.log(30.7)) == pytest.approx(30.7)


def test_float64_is_used_on_the_cpu_only(tiny_llama, tiny_windows, float64_on_cpu):
    window_nll(tiny_llama.model, tiny_windows.input_ids)
    assert float64_on_cpu
