"""GPT-2: its Conv1D holds a Linear's weight the other way round, so that rows are columns of what is stored."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from harmless import harmless
from same_bits import assert_same_bits, bits
from tiny_models import load_tiny, tiny_model
from torch import nn
from transformers.pytorch_utils import Conv1D

from engine.data.corpora import Windows
from engine.edits.edit import edit_of
from engine.edits.exporting import export_masked
from engine.interventions.at_outputs import edited_outputs, sees_sequences
from engine.interventions.in_weights import zeroed
from engine.models.checkpoints import find_checkpoint
from engine.models.loading import LoadedModel, load_model
from engine.models.rows_of_modules import kept, row_index
from engine.selectors.scoring_run import compute_scores

IDS = torch.randint(3, 200, (3, 11), generator=torch.Generator().manual_seed(0))
WINDOWS = Windows("test", "0", IDS, (0, 1, 2))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny("gpt2", tmp_path_factory.mktemp("gpt2"))


def some_rows(n_rows: int, share: float = 0.3) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(n_rows, size=round(share * n_rows), replace=False))


def edited_by_hand(loaded: LoadedModel, mask: np.ndarray) -> Any:
    """A second model, never shown as rows, with columns and biases set to zero one by one."""
    model = tiny_model("gpt2")
    state = model.state_dict()
    for layer in loaded.rows.layers:
        for row in mask[(mask >= layer.start) & (mask < layer.start + layer.rows)] - layer.start:
            state[f"{layer.name}.weight"][:, row] = 0
            state[f"{layer.name}.bias"][row] = 0
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS, use_cache=False).logits


def test_the_model_says_the_same_bits_and_stores_the_same(gpt2: LoadedModel) -> None:
    original = tiny_model("gpt2")
    assert any(type(module) is Conv1D for module in original.modules())
    assert not any(type(module) is Conv1D for module in gpt2.model.modules())
    assert torch.equal(logits(gpt2.model), logits(original))
    assert_same_bits(gpt2.model, bits(original))
    other = copy.deepcopy(gpt2.model)
    other.transformer.h[0].attn.c_attn.weight.zero_()
    assert torch.equal(logits(gpt2.model), logits(original))
    assert not torch.equal(logits(other), logits(original))
    assert row_index(gpt2.model) == gpt2.rows


def test_rows_are_the_columns(gpt2: LoadedModel) -> None:
    first = [(layer.projection, layer.sublayer, layer.rows) for layer in gpt2.rows.layers if layer.block == 0]
    assert first == [
        ("c_attn", "attention", 60), ("attn.c_proj", "attention", 20), ("c_fc", "mlp", 28), ("mlp.c_proj", "mlp", 20),
    ]  # fmt: skip
    scores = compute_scores(gpt2, ["magnitude"], None)["magnitude"]
    state = gpt2.model.state_dict()
    expected = [
        state[f"{layer.name}.weight"][:, row].abs().mean() for layer in gpt2.rows.layers for row in range(layer.rows)
    ]
    torch.testing.assert_close(scores, torch.stack(expected))


def test_a_mask_is_the_hand_edited_model_and_comes_back(gpt2: LoadedModel) -> None:
    mask, before = some_rows(gpt2.rows.n_rows), bits(gpt2.model)
    by_hand = edited_by_hand(gpt2, mask)
    with zeroed(gpt2, mask):
        assert_same_bits(gpt2.model, bits(by_hand))
        assert torch.equal(logits(gpt2.model), logits(by_hand))
    with pytest.raises(KeyboardInterrupt), zeroed(gpt2, mask):
        raise KeyboardInterrupt
    assert_same_bits(gpt2.model, before)
    assert sees_sequences(gpt2)
    edit = edit_of(mask, gpt2.rows.n_rows, kind="language model", spec={})
    with edited_outputs(gpt2, [edit]) as outputs, outputs.sequences([0]):
        torch.testing.assert_close(logits(gpt2.model), logits(by_hand))


def test_wanda_by_loops_over_the_stored_columns(gpt2: LoadedModel) -> None:
    scores = compute_scores(gpt2, ["wanda"], WINDOWS)["wanda"]
    inputs: dict[str, torch.Tensor] = {}
    model = tiny_model("gpt2")
    hooks = [
        model.get_submodule(layer.name).register_forward_hook(
            lambda _m, given, _o, name=layer.name: inputs.__setitem__(name, given[0].flatten(0, 1).double())
        )
        for layer in gpt2.rows.layers
    ]
    logits(model)
    for hook in hooks:
        hook.remove()
    expected = []
    for layer in gpt2.rows.layers:
        stored = model.get_submodule(layer.name).weight.detach().double()
        rms = inputs[layer.name].square().mean(0).sqrt()
        expected += [sum(abs(stored[j, row]) * rms[j] for j in range(len(rms))) for row in range(layer.rows)]
    torch.testing.assert_close(scores, torch.tensor(expected).float(), rtol=1e-5, atol=1e-6)


def test_export_zeroes_the_columns_in_the_files(gpt2: LoadedModel, tmp_path: Path) -> None:
    mask = some_rows(gpt2.rows.n_rows)
    chosen = edit_of(mask, gpt2.rows.n_rows, kind="language model", spec={"selector": "random", "order": "lerf"})
    effect = harmless(gpt2.weights_hash, chosen.mask_hash)
    export_masked(find_checkpoint(gpt2.id), chosen, tmp_path / "out", effect=effect)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert_same_bits(plain, bits(edited_by_hand(gpt2, mask)))
    again = load_model(str(tmp_path / "out"), dtype="float32", device="cpu")
    assert again.rows == gpt2.rows


def test_a_gate_beside_experts_is_a_router_and_elsewhere_a_linear() -> None:
    block = nn.ModuleDict({"gate": nn.Linear(3, 2)})
    assert kept([block]) == ""
    block["experts"] = nn.ModuleList()
    assert kept([block]) == "1 router"
