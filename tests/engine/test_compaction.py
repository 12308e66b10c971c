"""Skipping dead neurons: the same function, the same parameters afterwards, smaller matrices in between."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.interventions.compaction import compacted, compacts
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood


def mlp_rows(loaded, projection, block):
    frame = loaded.rows.frame()
    chosen = frame.filter(projection=projection, block=block)
    return chosen["row_id"].to_numpy()


def test_nll_is_that_of_the_dense_zeros(tiny_family, tiny_windows):
    n = tiny_family.rows.n_rows
    generator = np.random.default_rng(0)
    for rate in (0.1, 0.5, 0.9, 1.0):
        mask = np.sort(generator.choice(n, size=round(rate * n), replace=False))
        with zeroed(tiny_family, mask):
            dense = negative_log_likelihood(tiny_family, tiny_windows)
            with compacted(tiny_family):
                small = negative_log_likelihood(tiny_family, tiny_windows)
        # float32 sums of other lengths: a few units of 2^-23 per token
        assert small.nats_per_token == pytest.approx(dense.nats_per_token, rel=1e-6)
        assert small.tokens == dense.tokens


def test_a_neuron_is_skipped_if_its_gate_or_its_up_row_is_removed(tiny_llama):
    gate, up = mlp_rows(tiny_llama, "gate_proj", 0)[:5], mlp_rows(tiny_llama, "up_proj", 0)[3:9]
    mlp = tiny_llama.model.model.layers[0].mlp
    neurons = mlp.gate_proj.weight.shape[0]
    with zeroed(tiny_llama, np.sort(np.concatenate([gate, up]))), compacted(tiny_llama):
        assert mlp.gate_proj.weight.shape[0] == mlp.up_proj.weight.shape[0] == neurons - 9  # 0..4 and 3..8
        assert mlp.down_proj.weight.shape[1] == neurons - 9
        assert tiny_llama.model.model.layers[1].mlp.gate_proj.weight.shape[0] == neurons


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_very_same_parameters_are_back_also_after_an_exception(tiny_family, error):
    before = {name: (id(value), value.clone()) for name, value in tiny_family.model.named_parameters()}
    mask = np.arange(0, tiny_family.rows.n_rows, 2)
    with pytest.raises(error), zeroed(tiny_family, mask), compacted(tiny_family):
        raise error
    after = dict(tiny_family.model.named_parameters())
    assert list(after) == list(before)
    for name, (identity, value) in before.items():
        assert id(after[name]) == identity
        assert torch.equal(after[name], value)


def test_which_models_are_compacted(tiny_family):
    gated = any(hasattr(module, "gate_proj") for module in tiny_family.model.modules())
    assert compacts(tiny_family) == gated


def test_an_activation_that_does_not_map_zero_to_zero_is_left_alone(tiny_llama):
    mlps = [layer.mlp for layer in tiny_llama.model.model.layers]
    original = mlps[0].act_fn
    try:
        for mlp in mlps:
            mlp.act_fn = torch.nn.Sigmoid()
        assert not compacts(tiny_llama)
    finally:
        for mlp in mlps:
            mlp.act_fn = original
    assert compacts(tiny_llama)


def test_an_mlp_with_more_in_it_is_left_alone(tiny_llama):
    """A norm between the Linears, or statistics over all neurons, see the dead ones too."""
    mlps = [layer.mlp for layer in tiny_llama.model.model.layers]
    for change in (
        lambda mlp: setattr(mlp, "ffn_sub_norm", torch.nn.LayerNorm(4)),
        lambda mlp: setattr(mlp, "activation_sparsity", 0.95),
    ):
        try:
            for mlp in mlps:
                change(mlp)
            assert not compacts(tiny_llama)
        finally:
            for mlp in mlps:
                for name in ("ffn_sub_norm", "activation_sparsity"):
                    if hasattr(mlp, name):
                        delattr(mlp, name)
    assert compacts(tiny_llama)
