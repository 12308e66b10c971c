"""Attention without what a mask has made idle: the same numbers, counted FLOPs that are gone, the same model after."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import load_tiny, save_tiny
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, Gemma3nTextConfig

from engine.interventions import idle_attention
from engine.interventions.compaction import compacted
from engine.interventions.idle_attention import LEAST_IDLE, NAME, spare, spares
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood, window_nll
from engine.models.heads import attentions
from engine.models.loading import LoadedModel, load_model
from engine.models.rows import row_index

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma3_text", "olmo", "phi", "gemma3", "mixtral")
SPARED = ("llama", "qwen2", "qwen3", "mistral", "gemma3_text", "olmo")
HEADS = 4  # of queries in the tiny models


@pytest.fixture(scope="module", params=SPARED)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """Windows of attention are longer than those of the text: no mask is needed for them."""
    wide = {"sliding_window": 64} if request.param in ("gemma3_text", "mistral") else {}
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), **wide)


def rows(loaded: LoadedModel, projection: str, block: int | None = None) -> Any:
    frame = loaded.rows.frame().filter(projection=projection)
    return (frame if block is None else frame.filter(block=block))["row_id"].to_numpy()


def heads(loaded: LoadedModel, projection: str, *numbers: int) -> Any:
    """Rows of some heads in every block."""
    found = []
    for block in range(loaded.rows.n_blocks):
        own = rows(loaded, projection, block)
        count = HEADS if projection in ("q_proj", "o_proj") else len(own) // size(loaded)
        found += [own.reshape(count, -1)[number] for number in numbers]
    return np.concatenate(found)


def size(loaded: LoadedModel) -> int:
    return int(next(m.head_dim for m in loaded.model.modules() if hasattr(m, "q_proj")))


def meeting_in_zeros(loaded: LoadedModel) -> Any:
    """Half of every head's rotated pairs dead in the queries, the other half in the keys."""
    half = size(loaded) // 2
    first = [pair for pair in range(half) if pair % 2]
    second = [pair for pair in range(half) if not pair % 2]
    found = []
    for projection, pairs in (("q_proj", first), ("k_proj", second)):
        for block in range(loaded.rows.n_blocks):
            own = rows(loaded, projection, block).reshape(-1, 2, half)
            found.append(own[:, :, pairs].ravel())
    return np.concatenate(found)


MASKS = {
    "outputs": lambda one: rows(one, "o_proj"),
    "values": lambda one: rows(one, "v_proj"),
    "queries": lambda one: rows(one, "q_proj"),
    "keys": lambda one: rows(one, "k_proj"),
    "two heads of queries": lambda one: heads(one, "q_proj", 1, 2),
    "a head of values": lambda one: heads(one, "v_proj", 0),
    "pairs": meeting_in_zeros,
    "pairs and a head of values": lambda one: np.union1d(meeting_in_zeros(one), heads(one, "v_proj", 0)),
    "one block": lambda one: rows(one, "v_proj", 1),
    "nothing": lambda one: np.array([], dtype=np.int64),
}


@pytest.fixture
def attended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Heads of each fused attention that is computed."""
    found: list[int] = []
    fused = nn.functional.scaled_dot_product_attention

    def counting(query: Any, *args: Any, **more: Any) -> Any:
        found.append(query.shape[1])
        return fused(query, *args, **more)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counting)
    return found


def measured(loaded: LoadedModel, windows: Any, attended: list[int]) -> tuple[float, int, int]:
    """NLL, heads that attend, and FLOPs of products by torch's own count."""
    attended.clear()
    with FlopCounterMode(display=False) as counter:
        nll = negative_log_likelihood(loaded, windows).nats_per_token
    return nll, sum(attended), int(counter.get_total_flops())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", MASKS)
def test_the_same_numbers_for_less(model, tiny_windows, attended, name, device):
    """`cuda`: the rule of a card, which does not look at queries and keys, carried out here."""
    with zeroed(model, np.unique(MASKS[name](model))):
        dense, all_heads, all_flops = measured(model, tiny_windows, attended)
        with compacted(replace(model, device=device)):
            found, some_heads, some_flops = measured(model, tiny_windows, attended)
    assert found == pytest.approx(dense, rel=1e-6)
    assert all_heads == HEADS * model.rows.n_blocks
    groups = len(rows(model, "v_proj", 0)) // size(model)
    gone = {
        "outputs": 1, "values": 1, "queries": 1, "keys": 1, "one block": 1 / 2, "nothing": 0,
        "a head of values": 1 / groups, "two heads of queries": 1 / 2 if device == "cpu" else 0,
        "pairs": 1 if device == "cpu" else 0,
        "pairs and a head of values": 1 if device == "cpu" else 1 / groups,
    }[name]  # fmt: skip
    if gone < LEAST_IDLE:
        gone = 0
    assert some_heads == pytest.approx((1 - gone) * all_heads)
    assert (some_flops < all_flops) == (name in ("outputs", "values", "queries", "keys", "one block"))


@pytest.mark.parametrize("family", FAMILIES)
def test_any_mask_says_what_dense_zeros_say(family, tmp_path, tiny_windows):
    """Random shares of every projection, from none to all, block by block and head by head."""
    loaded = load_tiny(family, tmp_path / "model")
    generator = np.random.default_rng(0)
    for _ in range(12):
        mask = []
        for layer in loaded.rows.layers:
            share = generator.choice([0, 0.3, 0.7, 1])
            ids = np.arange(layer.start, layer.start + layer.rows)
            mask.append(ids[generator.random(layer.rows) < share])
        with zeroed(loaded, np.concatenate(mask)):
            dense = negative_log_likelihood(loaded, tiny_windows).nats_per_token
            with compacted(loaded):
                found = negative_log_likelihood(loaded, tiny_windows).nats_per_token
        assert found == pytest.approx(dense, rel=1e-6)


def test_padded_sequences_keep_their_mask(model):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 200, (3, 12), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, :5] = mask[1, 9:] = 0
    for name in ("queries", "pairs", "a head of values", "values"):
        with zeroed(model, np.unique(MASKS[name](model))):
            dense = window_nll(model.model, ids, mask)[0]
            with compacted(model):
                assert torch.allclose(window_nll(model.model, ids, mask)[0], dense, rtol=1e-5), name


def test_half_precision(tmp_path, tiny_windows):
    half = load_model(str(save_tiny("llama", tmp_path)), dtype="bfloat16", device="cpu")
    for name in MASKS:
        with zeroed(half, np.unique(MASKS[name](half))):
            dense = negative_log_likelihood(half, tiny_windows).nats_per_token
            with compacted(half):
                found = negative_log_likelihood(half, tiny_windows).nats_per_token
        assert found == pytest.approx(dense, rel=2**-8), name  # bfloat16 keeps 8 bits


def test_tokens_that_say_nothing_show_nothing(tiny_llama):
    """Zero embeddings make queries and keys zero; what later tokens say is not concluded from them."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(5, 200, (2, 12), generator=generator)
    embeddings = tiny_llama.model.get_input_embeddings().weight
    kept = embeddings[3].clone()
    half = size(tiny_llama) // 2
    dead = np.concatenate([rows(tiny_llama, "q_proj", b).reshape(-1, 2, half)[:, :, 0].ravel() for b in (0, 1)])
    other = np.concatenate([rows(tiny_llama, "k_proj", b).reshape(-1, 2, half)[:, 0, 1:].ravel() for b in (0, 1)])
    try:
        with torch.no_grad():
            embeddings[3] = 0
        with zeroed(tiny_llama, np.concatenate([dead, other])):
            dense = window_nll(tiny_llama.model, text)[0]
            with compacted(tiny_llama):
                window_nll(tiny_llama.model, torch.full((2, 12), 3))
                assert torch.allclose(window_nll(tiny_llama.model, text)[0], dense, rtol=1e-5)
    finally:
        with torch.no_grad():
            embeddings[3] = kept


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_the_model_is_as_it_was(model, tiny_windows, error):
    """Every attribute of every module, and the bits of what it says."""

    def state() -> list[dict[str, Any]]:
        return [{**vars(module)} for module in model.model.modules()]

    def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return one.keys() == other.keys() and all(other[key] is value for key, value in one.items())

    before, said = state(), negative_log_likelihood(model, tiny_windows)
    try:
        with zeroed(model, meeting_in_zeros(model)), compacted(model):
            negative_log_likelihood(model, tiny_windows)
            assert not all(map(same, before, state()))
            if error:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        pass
    assert all(map(same, before, state()))
    assert negative_log_likelihood(model, tiny_windows) == said


def named(loaded: LoadedModel) -> set[str]:
    """Which attentions the modules ask for while rows of all queries are zero."""
    steps: list[Any] = []
    with zeroed(loaded, rows(loaded, "q_proj")):
        try:
            spare(loaded, steps)
            return {
                module.config._attn_implementation for module in loaded.model.modules() if hasattr(module, "q_proj")
            }
        finally:
            while steps:
                steps.pop()()


def test_which_attentions_are_left_alone(tmp_path):
    """Of a Mac, computed in another way, with a constant in a norm, or of which the proof says that it is another
    function."""
    plain = load_tiny("llama", tmp_path / "plain")
    assert named(plain) == {NAME}
    assert spares(plain) == spares(replace(plain, device="cuda:1"))
    assert not spares(replace(plain, device="mps"))
    assert named(replace(plain, device="mps")) == {"sdpa"}

    eager = load_tiny("llama", tmp_path / "eager")
    eager.model.config._attn_implementation = "eager"
    assert not spares(eager)

    normed = load_tiny("llama", tmp_path / "normed")
    for block in normed.model.model.layers:
        block.self_attn.q_norm = nn.LayerNorm(6)
    assert not spares(normed)

    other = load_tiny("llama", tmp_path / "other")
    for block in other.model.model.layers:
        block.self_attn.register_forward_hook(lambda module, args, kwargs, output: (
            output[0] + module.k_proj(kwargs["hidden_states"]).mean(), output[1]
        ), with_kwargs=True)  # fmt: skip
    assert spares(other)
    assert named(other) == {"sdpa"}


def test_a_model_whose_attentions_share_keys_and_values_is_left_alone(tiny_llama):
    """Gemma 3n's last blocks have no keys and values of their own: what an earlier one computes is read there too."""
    config = Gemma3nTextConfig(
        vocab_size=300, vocab_size_per_layer_input=300, hidden_size=32, hidden_size_per_layer_input=8,
        intermediate_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        num_kv_shared_layers=2, laurel_rank=4, altup_num_inputs=2, sliding_window=64,
        layer_types=["sliding_attention", "full_attention"] * 2, activation_sparsity_pattern=[0.0] * 4,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    loaded = replace(tiny_llama, model=model, rows=row_index(model))
    assert len(attentions(model, loaded.rows).attentions) == 2
    assert not spares(loaded)
    assert named(loaded) == {"sdpa"}


def test_the_proof_is_made_once(tmp_path, tiny_windows, monkeypatch):
    loaded = load_tiny("llama", tmp_path)
    made = []
    proof = idle_attention._changes_nothing
    monkeypatch.setattr(idle_attention, "_changes_nothing", lambda one: made.append(one) or proof(one))
    for name in ("nothing", "values", "queries"):
        with zeroed(loaded, MASKS[name](loaded)), compacted(loaded):
            negative_log_likelihood(loaded, tiny_windows)
    assert len(made) == 1


@pytest.mark.parametrize("family", SPARED)
def test_the_proof_sees_a_mean_that_is_another(family, tmp_path, monkeypatch):
    loaded = load_tiny(family, tmp_path)
    monkeypatch.setattr(idle_attention, "_means_so_far", lambda value: value)
    steps: list[Any] = []
    assert not idle_attention._is_proven(loaded)
    for step in steps:
        step()  # nothing is left to do


def test_the_proof_sees_dimensions_that_are_mixed(tmp_path, tiny_windows):
    """Between its values and o_proj a head may turn them: then a dead value is no dead input."""
    loaded = load_tiny("llama", tmp_path)
    width = size(loaded)

    def turned(_: nn.Module, args: tuple[Any]) -> tuple[Any]:
        return (args[0].view(*args[0].shape[:-1], -1, width).roll(1, -1).view(args[0].shape),)

    for name, module in loaded.model.named_modules():
        if name.endswith("o_proj"):
            module.register_forward_pre_hook(turned)
    steps: list[Any] = []
    assert not idle_attention._is_proven(loaded)
    with zeroed(loaded, rows(loaded, "v_proj")[::2]):
        dense = negative_log_likelihood(loaded, tiny_windows).nats_per_token
        with compacted(loaded):
            assert spare(loaded, steps).live_inputs == {}
            assert negative_log_likelihood(loaded, tiny_windows).nats_per_token == pytest.approx(dense, rel=1e-6)


def test_a_proof_that_is_interrupted_leaves_nothing_behind(tmp_path, tiny_windows, monkeypatch):
    loaded = load_tiny("llama", tmp_path)
    before = [{**vars(module)} for module in loaded.model.modules()]
    said = negative_log_likelihood(loaded, tiny_windows)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(idle_attention, "_times", interrupted)
    with pytest.raises(KeyboardInterrupt), zeroed(loaded, rows(loaded, "v_proj")), compacted(loaded):
        pass
    after = [vars(module) for module in loaded.model.modules()]
    assert all(one.keys() == other.keys() for one, other in zip(before, after, strict=True))
    assert all(other[key] is value for one, other in zip(before, after, strict=True) for key, value in one.items())
    assert negative_log_likelihood(loaded, tiny_windows) == said
