"""Routed experts: the model says the same, and a row of an expert is a row like any other.

What is expected comes from transformers' own state dict, edited by hand: `export` knows the layouts by heart.
"""

from __future__ import annotations

import copy
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from harmless import harmless
from same_bits import assert_same_bits, bits
from tiny_models import EXPERT_FAMILIES, load_tiny, tiny_model

from engine.data.corpora import Windows
from engine.edits.edit import Edit, edit_of
from engine.edits.exporting import export_masked
from engine.interventions.at_outputs import edited_outputs, sees_sequences
from engine.interventions.compaction import compacted
from engine.interventions.in_weights import SavedRows, zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.checkpoints import find_checkpoint
from engine.models.experts import ExpertLinear
from engine.models.links import mlps, neuron_links
from engine.models.loading import LoadedModel, load_model
from engine.models.rows_of_modules import decoder_blocks, kept, row_index
from engine.models.units import neurons
from engine.selectors.scoring_run import compute_scores

IDS = torch.randint(3, 200, (4, 11), generator=torch.Generator().manual_seed(0))
WINDOWS = Windows("test", "0", IDS, (0, 1, 2, 3))
FAMILIES = (*EXPERT_FAMILIES, "jamba")
FIRST = ("mixtral", "gpt_oss", "deepseek_v3")
IN_TURN = [name if name in FIRST else pytest.param(name, marks=pytest.mark.long) for name in FAMILIES]


@pytest.fixture(scope="module", params=IN_TURN)
def routed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny("mixtral", tmp_path_factory.mktemp("mixtral"))


def logits(model: Any, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.no_grad():
        return model(ids, use_cache=False).logits


def some_rows(n_rows: int, share: float = 0.3) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(n_rows, size=round(share * n_rows), replace=False))


def stored_rows(state: dict[str, torch.Tensor], name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight [d_out, d_in] and bias of a layer of the row index, as views of a state dict that transformers wrote."""
    if f"{name}.weight" in state:
        return state[f"{name}.weight"], state.get(f"{name}.bias")
    path, number, projection = name.rsplit(".", 2)
    tensor = "down_proj" if projection == "down_proj" else "gate_up_proj"
    weight, bias = state[f"{path}.{tensor}"][int(number)], state.get(f"{path}.{tensor}_bias")
    bias = None if bias is None else bias[int(number)]
    if bias is not None:  # gpt-oss: [d_in, d_out], and gate and up in turn
        weight = weight.T
    if projection != "down_proj":
        if bias is not None:
            start = int(projection == "up_proj")
            return weight[start::2], bias[start::2]
        half = len(weight) // 2
        return weight[half:] if projection == "up_proj" else weight[:half], bias
    return weight, bias


def edited_by_hand(loaded: LoadedModel, mask: np.ndarray, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A copy of the state with the rows zero."""
    state = {name: value.detach().clone() for name, value in state.items()}
    for layer in loaded.rows.layers:
        weight, bias = stored_rows(state, layer.name)
        assert len(weight) == layer.rows
        for row in mask[(mask >= layer.start) & (mask < layer.start + layer.rows)] - layer.start:
            weight[row] = 0
            if bias is not None:
                bias[row] = 0
    return state


def never_shown(folder: str, dtype: torch.dtype = torch.float32) -> Any:
    """transformers' own model of a checkpoint, its experts in its own eager form."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    model.set_experts_implementation("eager")
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_model_says_what_transformers_says(routed: LoadedModel, dtype: torch.dtype) -> None:
    """Bit for bit in float64. In float32 a product for gate rows and one for up rows may sum in another order than one
    for both: 1e-5."""
    expected, model = never_shown(routed.id, dtype), never_shown(routed.id, dtype)
    before = bits(model)
    assert row_index(model) == routed.rows
    if dtype == torch.float64:
        assert torch.equal(logits(model), logits(expected))
    torch.testing.assert_close(logits(model), logits(expected), rtol=1e-5, atol=1e-5)
    assert list(model.state_dict()) == list(before)
    assert row_index(model) == routed.rows  # shown once


def test_in_bfloat16_an_expert_sum_is_as_near_to_float64_as_transformers_own(mixtral: LoadedModel) -> None:
    """The sum over experts is kept in the router's float32, as in transformers' grouped form: no worse than its eager
    form (twice would be luck of rounding), and within two roundings of bfloat16 of the largest entry."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(40, 20, generator=generator, dtype=torch.float64).bfloat16()
    weights, chosen = torch.rand(40, 5, generator=generator).topk(2)
    said = []
    for dtype, shown in ((torch.float64, False), (torch.bfloat16, False), (torch.bfloat16, True)):
        model = never_shown(mixtral.id).bfloat16().to(dtype)
        if shown:
            row_index(model)
        experts = model.model.layers[1].mlp.experts
        said.append(experts(hidden.to(dtype), chosen, weights.to(torch.promote_types(dtype, torch.float32))).double())
    exact, eager, ours = said
    assert (ours - exact).abs().max() <= 2 * (eager - exact).abs().max()
    assert (ours - exact).abs().max() <= 2**-7 * exact.abs().max()


def test_equal_to_the_grouped_form_that_transformers_runs_by_default(tmp_path: Path) -> None:
    """Its kernel takes float32 and sizes that are multiples of 4 only. 1e-5: sums in another order."""
    model = tiny_model("mixtral", hidden_size=32, intermediate_size=16)
    assert model.config._experts_implementation == "grouped_mm"
    expected = logits(model)
    row_index(model)
    torch.testing.assert_close(logits(model), expected, rtol=1e-5, atol=1e-5)


def test_rows_in_order(mixtral: LoadedModel) -> None:
    first = [layer for layer in mixtral.rows.layers if layer.block == 0]
    kinds = [f"mlp.experts.{number}.{name}" for name in ("gate_proj", "up_proj", "down_proj") for number in range(5)]
    assert [layer.projection for layer in first] == ["q_proj", "k_proj", "v_proj", "o_proj", *kinds]
    assert [layer.rows for layer in first] == [24, 12, 12, 20] + [14] * 10 + [20] * 5
    assert all(layer.sublayer == "mlp" for layer in first[4:])
    assert kept(decoder_blocks(mixtral.model)) == "2 routers"


def test_every_weight_matrix_but_what_is_kept_is_rows(routed: LoadedModel) -> None:
    """Counted from the state dict: fused experts have as many rows as their tensors, a router none."""
    state = routed.model.state_dict()
    aside = ("embed_tokens", "lm_head", "gate.weight", "router.weight", "conv1d", "dt_proj", "A_log", "expert_gate")
    total = 0
    for name, value in state.items():
        if value.ndim == 3 and "conv1d" not in name:
            swapped = f"{name}_bias" in state
            total += len(value) * value.shape[2 if swapped else 1]
        elif value.ndim == 2 and not any(one in name for one in aside) and not name.endswith("_proj_bias"):
            total += len(value)
    assert routed.rows.n_rows == total


def test_the_skeleton_has_the_same_rows(routed: LoadedModel) -> None:
    from engine.models.loading import load_rows

    assert load_rows(routed.id) == routed.rows


def test_magnitude_of_the_stored_rows(routed: LoadedModel) -> None:
    scores = compute_scores(routed, ["magnitude", "random"], None)
    state = never_shown(routed.id).state_dict()
    expected = [stored_rows(state, layer.name)[0].double().abs().mean(1) for layer in routed.rows.layers]
    torch.testing.assert_close(scores["magnitude"], torch.cat(expected).float())
    assert scores["random"].shape == (3, routed.rows.n_rows)


def test_a_mask_is_the_hand_edited_model_and_comes_back(routed: LoadedModel) -> None:
    mask, before = some_rows(routed.rows.n_rows), bits(routed.model)
    plain = never_shown(routed.id)
    plain.load_state_dict(edited_by_hand(routed, mask, plain.state_dict()))
    log_likelihoods = logits(plain).double().log_softmax(-1)[:, :-1].gather(-1, IDS[:, 1:, None])
    with zeroed(routed, mask):
        assert_same_bits(routed.model, bits(plain))
        torch.testing.assert_close(logits(routed.model), logits(plain), rtol=1e-4, atol=1e-4)
        with compacted(routed):  # of the dense MLPs beside the experts
            nats = negative_log_likelihood(routed, WINDOWS, 2).window_nats
    assert nats == pytest.approx((-log_likelihoods.sum((1, 2))).tolist(), rel=1e-5)
    assert_same_bits(routed.model, before)
    edit = edit_of(mask, routed.rows.n_rows, kind="language model", spec={})
    assert not sees_sequences(routed)
    with edited_outputs(routed, [edit]) as outputs, outputs.sequences([0]):
        torch.testing.assert_close(logits(routed.model), logits(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_restored_whatever_ends_the_block(mixtral: LoadedModel, error: type[BaseException]) -> None:
    before = bits(mixtral.model)

    def ended() -> None:
        with zeroed(mixtral, some_rows(mixtral.rows.n_rows)):
            assert any(not torch.equal(value, before[name]) for name, value in mixtral.model.state_dict().items())
            raise error

    with pytest.raises(error):
        ended()
    assert_same_bits(mixtral.model, before)


def test_an_interrupt_while_rows_come_back_loses_none(mixtral: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored
    before, put_back = bits(mixtral.model), SavedRows.put_back
    sent: list[int] = []

    def interrupted(saved: SavedRows) -> None:
        if not sent:
            sent.append(1)
            signal.raise_signal(signal.SIGINT)
        put_back(saved)

    monkeypatch.setattr(SavedRows, "put_back", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), zeroed(mixtral, some_rows(mixtral.rows.n_rows)):
            pass
    finally:
        signal.signal(signal.SIGINT, handler)
    assert sent
    assert_same_bits(mixtral.model, before)


def test_negative_zeros_and_nans_come_back_bit_for_bit(mixtral: LoadedModel) -> None:
    model = copy.deepcopy(mixtral.model)
    with torch.no_grad():
        model.model.layers[0].mlp.experts.gate_up_proj[2, 3] = -0.0
        model.model.layers[0].mlp.experts.down_proj[1, 2] = torch.nan
    before = bits(model)
    with zeroed(model, np.arange(mixtral.rows.n_rows)):
        assert not model.model.layers[0].mlp.experts.down_proj.any()
    assert_same_bits(model, before)
    assert not torch.isnan(mixtral.model.model.layers[0].mlp.experts.down_proj).any()  # the copy is a copy


def test_export_equals_the_mask(routed: LoadedModel, tmp_path: Path) -> None:
    """The files hold experts one by one (Mixtral, Qwen, OLMoE, DeepSeek) or fused (gpt-oss, Granite)."""
    mask = some_rows(routed.rows.n_rows)
    chosen = edit_of(mask, routed.rows.n_rows, kind="language model", spec={"selector": "random", "order": "lerf"})
    effect = harmless(routed.weights_hash, chosen.mask_hash)
    export_masked(find_checkpoint(routed.id), chosen, tmp_path / "out", effect=effect)
    with zeroed(routed, mask):
        assert_same_bits(never_shown(str(tmp_path / "out")), bits(routed.model))
    assert load_model(str(tmp_path / "out"), dtype="float32", device="cpu").rows == routed.rows


def test_neurons_of_experts(mixtral: LoadedModel, tmp_path: Path) -> None:
    """Zeroing a gate row and zeroing the neuron's input of down_proj are one and the same."""
    units = neurons(mixtral)
    assert units.count == 2 * 5 * 14
    rows = mixtral.rows.frame()["projection"].to_list()
    assert {rows[first].rpartition(".")[2] for first in units.rows[:, 0]} == {"gate_proj"}
    some = [3, 20, 77, 139]
    edit = Edit(lambda: np.sort(units.ids[some].ravel()), 4, side=units.side)
    with edited_outputs(mixtral, [edit]) as outputs, outputs.sequences([0]):
        at_inputs = logits(mixtral.model)
    with zeroed(mixtral, units.rows[some, 0]):
        torch.testing.assert_close(logits(mixtral.model), at_inputs)
    assert not torch.equal(logits(mixtral.model), at_inputs)
    # (up + 1) * glu(gate): a zero up row leaves gpt-oss's neuron alive, and no dead neuron is counted on.
    assert neurons(load_tiny("gpt_oss", tmp_path)).count == 0


def test_rewrites_leave_experts_as_they_are_and_say_why(mixtral: LoadedModel) -> None:
    (links, why), (found, without) = (of(mixtral.model, mixtral.rows) for of in (neuron_links, mlps))
    assert not links
    assert not found
    for told in (why, without):
        assert told.startswith("10 of 10 MLPs: a routed expert's weights are slices of a tensor that all experts share")


def test_what_the_modules_see_is_each_experts_tokens(mixtral: LoadedModel) -> None:
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda _m, given, _o, name=name: seen.__setitem__(name, given[1].clone()))
        for name, module in mixtral.model.named_modules()
        if isinstance(module, ExpertLinear)
    ]
    chosen: list[torch.Tensor] = []
    gates = [
        block.mlp.gate.register_forward_hook(lambda _m, _g, output: chosen.append(output[2]))
        for block in mixtral.model.model.layers
    ]
    logits(mixtral.model)
    for hook in (*hooks, *gates):
        hook.remove()
    for block, top in enumerate(chosen):
        assert top.shape == (IDS.numel(), 2)
        for expert in range(5):
            tokens = [token for token in range(IDS.numel()) if expert in top[token].tolist()]
            for name in ("gate_proj", "up_proj", "down_proj"):
                found = seen.get(f"model.layers.{block}.mlp.experts.{expert}.{name}", torch.tensor([]))
                assert sorted(found.tolist()) == tokens


@pytest.mark.parametrize("family", ["mixtral", "gpt2"])
def test_accelerates_hooks_go_on_around_the_new_forward(family: str) -> None:
    hooks = pytest.importorskip("accelerate.hooks")
    model = tiny_model(family)
    if family == "mixtral":
        model.set_experts_implementation("eager")
    expected = logits(model)
    called: list[str] = []

    class Noting(hooks.ModelHook):  # type: ignore[misc]
        def pre_forward(self, module: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            called.append(type(module).__name__)
            return args, kwargs

    for module in list(model.modules()):
        if type(module).__name__ in ("MixtralExperts", "Conv1D"):
            hooks.add_hook_to_module(module, Noting())
    rows = row_index(model)
    torch.testing.assert_close(logits(model), expected)
    assert len(called) == (2 if family == "mixtral" else 8)
    with zeroed(model, np.arange(rows.n_rows)):
        assert not torch.allclose(logits(model), expected)


def test_mean_ablation_is_over_the_tokens_that_an_expert_sees(mixtral: LoadedModel) -> None:
    from engine.interventions.mean import Mean

    layer = next(one for one in mixtral.rows.layers if one.name.endswith("layers.1.mlp.experts.2.up_proj"))
    said: list[torch.Tensor] = []
    hook = mixtral.model.get_submodule(layer.name).register_forward_hook(lambda _m, _g, output: said.append(output))
    logits(mixtral.model)
    hook.remove()
    assert 0 < len(said[0]) < IDS.numel()
    mean = Mean()
    mean.prepare(mixtral, WINDOWS)
    mean.fill(mixtral)
    units = torch.ones(1, layer.rows, dtype=torch.bool)
    replaced = mean.apply(said[0], units, layer)
    torch.testing.assert_close(replaced, said[0].mean(0).expand_as(said[0]))
