"""Skipping dead neurons: the same function, the same parameters afterwards, smaller matrices in between."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_models import load_tiny, save_tiny

from engine.interventions import compaction as compaction_module
from engine.interventions.compaction import compacted, compacts, kept_neurons
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.links import gated_mlps
from engine.models.loading import load_model

WIDTH = 100  # neurons: several multiples of 16 and of 32, and none itself
FLOAT, HALF = 4, 2  # bytes


def mlp_rows(loaded, projection, block):
    frame = loaded.rows.frame()
    chosen = frame.filter(projection=projection, block=block)
    return chosen["row_id"].to_numpy()


@pytest.fixture(scope="module", params=["llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text"])
def wide(request, tmp_path_factory):
    """A model with enough neurons for a rule of widths."""
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), intermediate_size=WIDTH)


def widths(loaded):
    return [[part.weight.shape[:: 1 - 2 * (part is mlp[2])][0] for part in mlp] for mlp in gated_mlps(loaded.model)]


@pytest.mark.parametrize(("device", "by_mask"), [("cpu", True), ("cuda", True), ("cuda", False)])
def test_nll_is_that_of_the_dense_zeros(wide, tiny_windows, device, by_mask):
    """`cuda`: the rule of a card, carried out here. by_mask: the mask is given, by which a card tells dead rows."""
    ruled = replace(wide, device=device)
    n, found = wide.rows.n_rows, set()
    generator = np.random.default_rng(0)
    shuffled = generator.permutation(n)
    for rate in (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0):
        mask = np.sort(shuffled[: round(rate * n)])
        with zeroed(wide, mask):
            dense = negative_log_likelihood(wide, tiny_windows)
            alive = [
                int(((gate.weight != 0).any(1) & (up.weight != 0).any(1)).sum())
                for gate, up, _ in gated_mlps(wide.model)
            ]
            with compacted(ruled, mask if by_mask else None):
                small = negative_log_likelihood(wide, tiny_windows)
                kept = widths(wide)
        assert kept == [[kept_neurons(WIDTH, count, FLOAT, device)] * 3 for count in alive]
        found |= {one for mlp in kept for one in mlp}
        # float32 sums of other lengths: a few units of 2^-23 per token
        assert small.nats_per_token == pytest.approx(dense.nats_per_token, rel=1e-6, abs=1e-5)
        assert small.tokens == dense.tokens
    step = 16 if device == "cpu" else 32
    assert {0, step, WIDTH} <= found
    assert widths(wide) == [[WIDTH] * 3] * 2


def test_every_family_gives_what_the_dense_zeros_give(tiny_family, tiny_windows):
    """Of all rows alike, and of each Linear another share."""
    n, layers = tiny_family.rows.n_rows, tiny_family.rows.layers
    generator = np.random.default_rng(0)
    for rates in ([0.0], [0.02], [0.5], [0.9], [1.0], *[[0.0, 0.1, 0.5, 0.9, 1.0]] * 4):
        share = np.repeat(generator.choice(rates, len(layers)), [layer.rows for layer in layers])
        mask = np.flatnonzero(generator.random(n) < share)
        with zeroed(tiny_family, mask):
            dense = negative_log_likelihood(tiny_family, tiny_windows)
            for device in ("cpu", "cuda"):
                with compacted(replace(tiny_family, device=device), mask):
                    small = negative_log_likelihood(tiny_family, tiny_windows)
                assert small.nats_per_token == pytest.approx(dense.nats_per_token, rel=1e-6)
                assert small.tokens == dense.tokens


@pytest.mark.parametrize(("device", "kept"), [("cpu", 32), ("cuda", 64)])
def test_half_precision_keeps_wider_multiples(tmp_path, tiny_windows, device, kept):
    half = load_model(str(save_tiny("llama", tmp_path, intermediate_size=WIDTH)), dtype="bfloat16", device="cpu")
    mask = np.concatenate([mlp_rows(half, "gate_proj", block)[: WIDTH - 30] for block in (0, 1)])
    with zeroed(half, mask):
        dense = negative_log_likelihood(half, tiny_windows).nats_per_token
        with compacted(replace(half, device=device)):
            assert widths(half) == [[kept] * 3] * 2
            small = negative_log_likelihood(half, tiny_windows).nats_per_token
    assert small == pytest.approx(dense, rel=2**-8)  # bfloat16 keeps 8 bits


def test_a_neuron_is_skipped_if_its_gate_or_its_up_row_is_removed(wide, tiny_windows):
    gate, up = mlp_rows(wide, "gate_proj", 0)[:20], mlp_rows(wide, "up_proj", 0)[15:40]
    mlp = next(layer for name, layer in wide.model.named_modules() if name.endswith("layers.0.mlp"))
    before = mlp.down_proj.weight.clone()
    with zeroed(wide, np.sort(np.concatenate([gate, up]))), compacted(wide):
        assert widths(wide) == [[64] * 3, [WIDTH] * 3]  # 0..19 and 15..39 are dead, four of them stay
        assert torch.equal(mlp.down_proj.weight, before[:, [0, 1, 2, 3, *range(40, WIDTH)]])


def test_an_mlp_beside_the_decoder_blocks_keeps_its_neurons(wide):
    """As a vision tower's, whose rows are not in the row index."""
    beside = copy.deepcopy(next(module for name, module in wide.model.named_modules() if name.endswith("0.mlp")))
    mask = mlp_rows(wide, "gate_proj", 1)
    wide.model.tower = beside
    try:
        with zeroed(wide, mask), compacted(replace(wide, device="cuda"), mask):
            assert widths(wide) == [[WIDTH] * 3, [0] * 3, [WIDTH] * 3]
    finally:
        del wide.model.tower


def test_an_mlp_that_nobody_reads_is_skipped(wide, tiny_windows):
    with zeroed(wide, mlp_rows(wide, "down_proj", 1)):
        dense = negative_log_likelihood(wide, tiny_windows).nats_per_token
        with compacted(wide):
            assert widths(wide) == [[WIDTH] * 3, [0] * 3]
            assert negative_log_likelihood(wide, tiny_windows).nats_per_token == pytest.approx(dense, rel=1e-6)


def test_an_mlp_without_room_for_its_copy_stays_dense(wide, tiny_windows, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(compaction_module, "_smaller", full)
    with zeroed(wide, mlp_rows(wide, "gate_proj", 0)), compacted(wide):
        assert widths(wide) == [[WIDTH] * 3] * 2


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
    assert compacts(tiny_family) == compacts(replace(tiny_family, device="cuda:1")) == gated
    assert not compacts(replace(tiny_family, device="mps"))


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
