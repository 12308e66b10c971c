"""Rewrites leave every bit of every logit and are undone whatever ends the block; where they cannot, they say so."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from same_bits import assert_same_bits, bits
from tiny_models import load_tiny

from engine.data.corpora import Windows
from engine.edits.edit import UNEDITED
from engine.interventions.in_weights import zeroed
from engine.interventions.rewrites import Decoys, make_rewrite, rewritten
from engine.interventions.uninterrupted import Undone
from engine.measures.logit_bits import Bits, LogitBits
from engine.measures.nll import negative_log_likelihood
from engine.models.links import value_links
from engine.models.loading import LoadedModel
from engine.models.norms import norm_readers
from engine.models.rows_of_modules import row_index
from engine.records.errors import InputError

PROVEN = ("neurons", "values", "norms", "decoys")


@pytest.fixture(scope="module", params=["llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param))


def logits(loaded: LoadedModel, windows: Windows) -> torch.Tensor:
    with torch.no_grad():
        return loaded.model(input_ids=windows.input_ids, use_cache=False).logits


def measured(loaded: LoadedModel, windows: Windows) -> Bits:
    return LogitBits(windows).measure(loaded, UNEDITED)


@pytest.mark.parametrize("name", PROVEN)
def test_every_logit_keeps_every_bit(family, tiny_windows, name):
    model, before, same = family.model, bits(family.model), logits(family, tiny_windows)
    parameters = {path: id(one) for path, one in model.named_parameters()}
    rewrite = make_rewrite(name, family, seed=3, power=5, decoys=7)
    assert rewrite.units > 0
    assert rewrite.left_out == ""
    with rewritten(family, rewrite) as inside:
        assert torch.equal(logits(inside, tiny_windows).view(torch.int32), same.view(torch.int32))
        changed = {name for name, value in model.state_dict().items() if not same_values(value, before.get(name))}
    wanted = {
        "neurons": ("up_proj", "down_proj"),
        "values": ("v_proj", "o_proj"),
        "norms": ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "layernorm"),
        "decoys": ("gate_proj", "up_proj", "down_proj"),
    }[name]
    assert {next(kind for kind in wanted if kind in path) for path in changed} == set(wanted)
    assert_same_bits(model, before)
    assert {path: id(one) for path, one in model.named_parameters()} == parameters  # the very parameters of before


def same_values(value: torch.Tensor, old: torch.Tensor | None) -> bool:
    return old is not None and value.shape == old.shape and torch.equal(value, old)


def test_rows_and_columns_are_scaled_as_a_loop_over_heads_says(family):
    """Grouped-query attention by hand: query head h reads key-value head h // groups."""
    config = getattr(family.model.config, "text_config", family.model.config)
    heads, groups, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    (link, *_), rewrite = value_links(family.model, family.rows)[0], make_rewrite("values", family, seed=1)
    exponents = rewrite.exponents[0]
    rows, reader = (family.model.get_submodule(path) for path in (link.rows, link.columns))
    v, o = rows.weight.clone(), reader.weight.clone()
    with rewritten(family, rewrite):
        for head in range(groups):
            for dim in range(size):
                row = head * size + dim
                assert torch.equal(rows.weight[row], v[row] * 2.0 ** int(exponents[row]))
        for head in range(heads):
            for dim in range(size):
                row = (head // (heads // groups)) * size + dim
                column = head * size + dim
                assert torch.equal(reader.weight[:, column], o[:, column] / 2.0 ** int(exponents[row]))
    assert len(set(exponents.tolist())) > 3


def test_norms_keep_a_weight_from_one_to_two(family, tiny_windows):
    """Of a norm that multiplies by 1 + weight it is 1 + weight. A reader's columns times what the norm lost."""
    fold = make_rewrite("norms", family)
    plus_one = "gemma" in type(family.model).__name__.lower()
    assert {one.plus_one for one in fold.norms} == {plus_one}
    assert len(fold.norms) == 2 * family.rows.n_blocks  # those before attention and before the MLP, no others
    before = {one.norm: family.model.get_submodule(one.norm).weight.clone() for one in fold.norms}
    with rewritten(family, fold):
        for one in fold.norms:
            left = family.model.get_submodule(one.norm).weight + plus_one
            assert ((left.abs() >= 1) & (left.abs() < 2)).all()
            ratio = (before[one.norm] + plus_one) / left
            assert torch.equal(torch.frexp(ratio)[0], torch.full_like(ratio, 0.5))  # powers of two


def test_folding_whole_norm_weights_is_no_proof(family, tiny_windows):
    before = measured(family, tiny_windows)
    with rewritten(family, make_rewrite("norms-whole", family)) as inside:
        after = measured(inside, tiny_windows)
        for one in norm_readers(family)[0]:
            weight = family.model.get_submodule(one.norm).weight
            assert torch.equal(weight, torch.zeros_like(weight) if one.plus_one else torch.ones_like(weight))
    assert not after.same_function(before)
    assert after.nats != before.nats  # though their sum may be, rounding being what it is
    assert abs(after.nll_difference(before)) < 1e-5
    assert measured(family, tiny_windows) == before


def test_the_proof_fails_where_the_function_changes(family, tiny_windows):
    """A rewrite that scales rows and forgets their readers; and one in which one column goes to the wrong row."""
    before, right = measured(family, tiny_windows), make_rewrite("values", family)
    (link, *others) = right.links
    swapped = link.reads.clone()
    pair = [0, next(i for i, e in enumerate(right.exponents[0]) if e != right.exponents[0][0])]
    swapped[pair] = link.reads[pair[::-1]]
    wrong = replace(right, links=(replace(link, reads=swapped), *others))
    with rewritten(family, wrong) as inside:
        assert measured(inside, tiny_windows).equal_windows(before) == 0
    with rewritten(family, right) as inside:
        assert measured(inside, tiny_windows).same_function(before)


def test_bits_go_to_the_store_and_back(tiny_llama, tiny_windows):
    measure = LogitBits(tiny_windows)
    found = measured(tiny_llama, tiny_windows)
    assert measure.decode(measure.encode(found)) == found
    expected = negative_log_likelihood(tiny_llama, tiny_windows).nats_per_token
    assert sum(found.nats) / found.tokens == pytest.approx(expected, rel=1e-6)  # float32 sums in another order


@pytest.mark.parametrize("name", PROVEN)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_restored_after_whatever_ends_the_block(family, name, error):
    before, index = bits(family.model), row_index(family.model)
    with pytest.raises(error), rewritten(family, make_rewrite(name, family)):
        raise error
    assert_same_bits(family.model, before)
    assert row_index(family.model) == index
    assert [type(one) for one in family.model.modules()].count(torch.nn.Linear) == len(index.layers) + 1


@pytest.mark.parametrize("name", PROVEN)
def test_restored_when_the_rewrite_itself_fails_half_way(family, name, monkeypatch):
    before, real, calls = bits(family.model), Undone.swap, []
    rewrite = make_rewrite(name, family)

    def failing(*given):
        calls.append(1)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("no room for the third copy")
        return real(*given)

    monkeypatch.setattr(Undone, "swap", failing)
    with (
        pytest.raises(InputError, match=f"copy of the matrices that the rewrite {name} changes"),
        rewritten(family, rewrite),
    ):
        pytest.fail("the block must not run")
    assert len(calls) == 3
    assert_same_bits(family.model, before)


def test_interrupts_during_the_restore_do_not_stop_it(tiny_llama, monkeypatch):
    before, sent, real = bits(tiny_llama.model), [], Undone.take_back

    def interrupted(steps):
        for _ in range(3):
            sent.append(1)
            signal.raise_signal(signal.SIGINT)
        real(steps)

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(Undone, "take_back", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), rewritten(tiny_llama, make_rewrite("neurons", tiny_llama)):
            pass
    finally:
        signal.signal(signal.SIGINT, old)
    assert sent
    assert_same_bits(tiny_llama.model, before)


@pytest.mark.parametrize("name", ["neurons", "values", "norms"])
def test_a_mask_is_the_same_edit_before_and_after(family, tiny_windows, name):
    """Why LeRF of rewritten scores may be measured on the model as it is: a row is zero in both or in neither."""
    mask = np.arange(0, family.rows.n_rows, 3)
    with zeroed(family, mask):
        expected = logits(family, tiny_windows)
    with rewritten(family, make_rewrite(name, family)) as inside, zeroed(inside, mask):
        assert torch.equal(logits(inside, tiny_windows), expected)


def test_decoys_are_the_last_rows_of_their_layers_and_nothing_reads_them(tiny_family, tiny_windows):
    """Widened by hand: every layer's own rows come first and are what they were; removing the decoys changes no bit."""
    index, model = tiny_family.rows, tiny_family.model
    same = logits(tiny_family, tiny_windows)
    rewrite = make_rewrite("decoys", tiny_family, seed=2, decoys=9, decoy_power=6)
    assert isinstance(rewrite, Decoys)
    assert rewrite.units == 9
    old = {layer.name: model.get_submodule(layer.name).weight.clone() for layer in index.layers}
    with rewritten(tiny_family, rewrite) as inside:
        decoys = set(rewrite.rows_of(inside.rows).tolist())
        assert inside.rows.n_rows == index.n_rows + len(decoys)
        for before, layer in zip(index.layers, inside.rows.layers, strict=True):
            assert (before.name, before.projection) == (layer.name, layer.projection)
            added = [row - layer.start for row in decoys if layer.start <= row < layer.start + layer.rows]
            assert sorted(added) == list(range(before.rows, layer.rows))
            weight = model.get_submodule(layer.name).weight
            rows, columns = old[layer.name].shape
            assert torch.equal(weight[:rows, :columns], old[layer.name])
            assert (weight[:rows, columns:] == 0).all()
            for row in weight[rows:] / 2.0**6:
                assert any(torch.equal(row, one) for one in old[layer.name])
        with zeroed(inside, sorted(decoys)):
            assert torch.equal(logits(inside, tiny_windows), same)
        with zeroed(inside, [row for row in range(inside.rows.n_rows) if row not in decoys][:20]):
            assert not torch.equal(logits(inside, tiny_windows), same)
    assert row_index(model) == index


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_compared_and_not_assumed(tiny_llama, tiny_windows, dtype):
    """bfloat16 has float32's exponents. In float16 a decoy's output overflows, and nothing is proven."""
    lowered = type(tiny_llama.model)(tiny_llama.model.config).eval().requires_grad_(False)
    lowered.load_state_dict(tiny_llama.model.state_dict())
    half = replace(tiny_llama, model=lowered.to(dtype), dtype=str(dtype).removeprefix("torch."))
    before = measured(half, tiny_windows)
    with rewritten(half, make_rewrite("decoys", half, decoy_power=14)) as inside:
        assert measured(inside, tiny_windows).same_function(before) == (dtype == torch.bfloat16)
    if dtype == torch.bfloat16:
        for name in ("neurons", "values", "norms"):
            with rewritten(half, make_rewrite(name, half)) as inside:
                assert measured(inside, tiny_windows).same_function(before), name
    assert measured(half, tiny_windows) == before


def test_no_cached_number_of_one_model_is_taken_for_another(tiny_llama):
    seen = {tiny_llama.weights_hash}
    for changes in ({}, {"seed": 1}, {"power": 3}):
        with rewritten(tiny_llama, make_rewrite("neurons", tiny_llama, **changes)) as inside:
            seen.add(inside.weights_hash)
    for name, changes in (("values", {}), ("decoys", {}), ("decoys", {"decoys": 3}), ("decoys", {"decoy_power": 3})):
        with rewritten(tiny_llama, make_rewrite(name, tiny_llama, **changes)) as inside:
            seen.add(inside.weights_hash)
    assert len(seen) == 8
