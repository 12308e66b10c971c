"""lrp of families that lxt does not name: whose rules they get, that those are AttnLRP's, and who is refused."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
import torch
from slow_attnlrp import Slow
from test_attnlrp import collected, gradients, largest_logit, same
from tiny_models import LRP_FAMILIES, STRUCTURE_FAMILIES, tiny_config, tiny_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralMLP, MistralRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from engine.models import attnlrp
from engine.models.attnlrp import attn_lrp, check_rules
from engine.models.lrp_by_structure import Structure, structure
from engine.models.norms import NormForm, norm_form
from engine.records.errors import InputError

ROPE: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "rms_norm_eps": 1e-6}
# What makes each the same function as Llama of the same shape.
AS_LLAMA: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "smollm3": {"no_rope_layers": [1, 1]},
    "granite": {
        "residual_multiplier": 1.0, "embedding_multiplier": 1.0, "logits_scaling": 1.0, "attention_multiplier": 6**-0.5,
    },
}  # fmt: skip
# How each is put together, for `Slow`, and factors of embeddings (Gemma's scale themselves) and divisor of logits.
PARTS: dict[str, tuple[dict[str, Any], tuple[float, float]]] = {
    "llama": ({"after": False, "factor": 1.0, "rotary": (True, True), "window": None}, (1.0, 1.0)),
    "mistral": ({"after": False, "factor": 1.0, "rotary": (True, True), "window": None}, (1.0, 1.0)),
    "granite": ({"after": False, "factor": 0.4, "rotary": (True, True), "window": None}, (3.0, 2.0)),
    "smollm3": ({"after": False, "factor": 1.0, "rotary": (True, False), "window": None}, (1.0, 1.0)),
    "exaone4": ({"after": True, "factor": 1.0, "rotary": (True, False), "window": 9}, (1.0, 1.0)),
    "olmo2": ({"after": True, "factor": 1.0, "rotary": (True, True), "window": None}, (1.0, 1.0)),
    "gemma": ({"after": False, "factor": 1.0, "rotary": (True, True), "window": None}, (1.0, 1.0)),
}


class GateIsUp(MistralMLP):
    """The activation on the other factor."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


class SquaredLlama(LlamaMLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x) ** 2)


class Clamped(MistralMLP):
    """As in gpt-oss."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x).clamp(max=7.0)) * self.up_proj(x).clamp(-7.0, 7.0))


class OtherActivation(MistralMLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.gelu(self.gate_proj(x)) * self.up_proj(x))


class Residual(MistralMLP):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Rescaled(MistralMLP):
    """The same, an entry at a time divided and multiplied: not to the bit."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) / 3 * self.up_proj(x) * 3)


class Centred(MistralRMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = hidden_states - hidden_states.mean(-1, keepdim=True)
        return super().forward(hidden_states)


class EpsOutside(MistralRMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return (
            self.weight * hidden_states / (hidden_states.pow(2).mean(-1, keepdim=True).sqrt() + self.variance_epsilon)
        )


class PlusOne(MistralRMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states) / self.weight * (1 + self.weight)


class Unrooted(MistralRMSNorm):
    """Divided by the l2 norm, without the root of the width."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states) / hidden_states.shape[-1] ** 0.5


class Capped(MistralRMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states).clamp(-5.0, 5.0)


class Gated(MistralAttention):
    def forward(self, hidden_states: Tensor, *inputs: Any, **more: Any) -> Any:
        output, weights = super().forward(hidden_states, *inputs, **more)
        return output * hidden_states.mean(-1, keepdim=True).sigmoid(), weights


@pytest.fixture
def input_ids() -> Tensor:
    return torch.randint(3, 290, (2, 13), generator=torch.Generator().manual_seed(7))


def replaced(family: str, of: type[nn.Module], by: type[nn.Module]) -> Any:
    """The tiny model with the class of one module of its last block changed."""
    model = tiny_model(family).requires_grad_(False)
    next(module for module in model.model.layers[-1].modules() if type(module) is of).__class__ = by
    return model


@pytest.mark.parametrize("family", PARTS)
def test_relevances_are_those_of_the_rules_written_down_by_hand(family: str, input_ids: Tensor) -> None:
    model = tiny_model(family).double().requires_grad_(False)
    parts, (multiplier, divisor) = PARTS[family]
    slow = Slow(model, **parts)
    logits = slow.logits(input_ids, multiplier, divisor)
    own = model(input_ids).logits
    # float64, but for norms and rotary positions of transformers, which round to float32 inside
    torch.testing.assert_close(logits, own, rtol=1e-4, atol=1e-5)
    expected = slow.relevances(largest_logit(own), logits)
    found = collected(model, "lrp", input_ids)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert (found[name] - values).norm() < 1e-5 * values.norm(), name


@pytest.mark.parametrize("family", AS_LLAMA)
def test_where_a_family_is_the_same_function_as_llama_so_are_its_relevances(family: str, input_ids: Tensor) -> None:
    model = tiny_model(family, **ROPE, **AS_LLAMA[family]).requires_grad_(False)
    llama = tiny_model("llama", seed=1, **ROPE).requires_grad_(False)
    llama.load_state_dict(model.state_dict())
    expected, found = collected(llama, "lrp", input_ids), collected(model, "lrp", input_ids)
    for name, values in expected.items():
        # the same operations, but for the factors of 1
        torch.testing.assert_close(found[name], values, msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", LRP_FAMILIES)
def test_structure_gives_the_families_of_lxt_the_relevances_that_lxt_gives_them(
    family: str, dtype: torch.dtype, input_ids: Tensor, monkeypatch: Any
) -> None:
    model = tiny_model(family).to(dtype).requires_grad_(False)
    assert attnlrp._rules_of(model).by_structure is False
    expected, classes = collected(model, "lrp", input_ids), attnlrp._rules_of(model).patches.keys()
    monkeypatch.setattr(attnlrp, "FAMILIES", ())
    found = attnlrp._rules_of(model)
    assert found.by_structure is True
    assert found.modelings == (sys.modules[type(model).__module__],)
    assert found.patches.keys() == {of for of in classes if isinstance(of, type)}
    by_structure = collected(model, "lrp", input_ids)
    assert all(torch.equal(by_structure[name], values) for name, values in expected.items())


def test_norms_are_told_apart() -> None:
    forms = [norm_form(of(20)) for of in (LlamaRMSNorm, MistralRMSNorm, Olmo2RMSNorm, Gemma3RMSNorm)]
    llama = NormForm("variance_epsilon", "llama")
    assert forms == [llama, llama, NormForm("variance_epsilon", "olmo2"), NormForm("eps", "gemma3")]
    assert [norm_form(module) for module in (nn.LayerNorm(20), nn.RMSNorm(20), nn.Identity())] == [None] * 3
    assert norm_form(LlamaMLP(tiny_config("llama"))) is None


@pytest.mark.parametrize("of", [EpsOutside, PlusOne, Centred, Unrooted, Capped])
@pytest.mark.parametrize("eps", [1e-6, 1e-5])
def test_a_norm_that_differs_slightly_is_none_and_by_how_much_is_said(of: type[MistralRMSNorm], eps: float) -> None:
    apart = norm_form(of(20, eps))
    assert isinstance(apart, float)
    assert 0.001 < apart < 100  # more than half precision rounds


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("phi3", "what layers.0.mlp.activation_fn (SiLUActivation) gives is no linear function"),
        (
            "gemma2",
            "beside Gemma2Attention, called with .*softcap=50.0, differs from softmax(scaling * q k^T + mask) v",
        ),
        ("bitnet", "layers.0.mlp (BitNetMLP): what down_proj gets differs from act_fn(gate_proj(x)) * up_proj(x) by"),
        ("olmo", "what layers.0.input_layernorm (OlmoLayerNorm) gives is no linear function of .* off by 0."),
        ("phi", "what layers.0.input_layernorm (LayerNorm) gives is no linear function"),
        ("mixtral", "layers.0.mlp.experts.0.gate_proj (ExpertLinear) is of a routed expert"),
        ("gpt_oss", "layers.0.mlp.experts.0.gate_proj (ExpertLinear) is of a routed expert"),
        ("gpt2", "what drop (Dropout) gives is no linear function"),  # of positions a constant is added
        ("mamba", "MambaModel does not run on random numbers in the place of its Linears'"),
    ],
)
def test_a_refusal_says_which_part_differs_in_one_line(family: str, said: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config(family))
    with pytest.raises(InputError) as caught:
        check_rules(model)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"lrp has no rules for {type(model).__name__} ({family}): ")
    assert re.search(".*".join(map(re.escape, said.split(".*"))), message), message
    assert "supported families: llama, qwen2, qwen3, gemma3, and those whose parts compute the same" in message
    assert message.endswith("the selectors other than lrp, relp and consensus2 still work")


IN_DOWN = "what down_proj gets differs from act_fn(gate_proj(x)) * up_proj(x) by"


@pytest.mark.parametrize(
    ("family", "of", "by", "said"),
    [
        ("mistral", MistralMLP, GateIsUp, f"layers.1.mlp (GateIsUp): {IN_DOWN}"),
        ("mistral", MistralMLP, Clamped, f"layers.1.mlp (Clamped): {IN_DOWN}"),
        ("mistral", MistralMLP, OtherActivation, f"layers.1.mlp (OtherActivation): {IN_DOWN}"),
        ("mistral", MistralMLP, Rescaled, f"layers.1.mlp (Rescaled): {IN_DOWN}"),
        ("mistral", MistralMLP, Residual, "layers.1.mlp (Residual): what the MLP gives differs from what down_proj"),
        ("llama", LlamaMLP, SquaredLlama, f"layers.1.mlp (SquaredLlama): {IN_DOWN}"),
        ("mistral", MistralRMSNorm, Centred, "what layers.1.input_layernorm (Centred) (the nearest RMS norm differs"),
        ("mistral", MistralRMSNorm, EpsOutside, "what layers.1.input_layernorm (EpsOutside) (the nearest RMS norm"),
        ("mistral", MistralRMSNorm, Unrooted, "what layers.1.input_layernorm (Unrooted) (the nearest RMS norm differs"),
        ("mistral", MistralAttention, Gated, "what layers.1.self_attn (Gated) gives is no linear function"),
    ],
)  # fmt: skip
def test_a_changed_class_is_refused(family: str, of: type[nn.Module], by: type[nn.Module], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        check_rules(replaced(family, of, by))


def test_an_activation_that_mixes_entries_is_refused() -> None:
    model = tiny_model("mistral")
    model.model.layers[1].mlp.act_fn = nn.Softmax(-1)
    assert "layers.1.mlp (MistralMLP): act_fn of an entry alone differs from act_fn among others" in str(
        structure(model)
    )


def test_sinks_in_attention_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """gpt-oss's attention function, beside attention without routed experts."""
    model = tiny_model("mistral")
    for layer in model.model.layers:
        layer.self_attn.register_parameter("sinks", nn.Parameter(torch.randn(4)))
    modeling = sys.modules[MistralAttention.__module__]
    monkeypatch.setattr(modeling, "eager_attention_forward", modeling_gpt_oss.eager_attention_forward)
    expected = r"beside MistralAttention, called with .*, differs from softmax.* v by [\d.]+ of the largest entry"
    assert re.search(expected, str(structure(model)))


def test_probes_leave_the_model_and_the_random_state_as_they_were(input_ids: Tensor) -> None:
    for family in ("exaone4", "gemma"):
        model = tiny_model(family).to(torch.bfloat16).requires_grad_(False)
        before = {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
        state, config = torch.get_rng_state(), model.config.to_dict()
        modules = [dict(vars(module)) for module in model.modules()]
        owners = [sys.modules[type(model).__module__], *{type(module) for module in model.modules()}]
        classes = [dict(vars(owner)) for owner in owners]
        found = structure(model)
        with torch.device("meta"):
            bare = AutoModelForCausalLM.from_config(tiny_config(family))
        assert isinstance(found, Structure)
        assert structure(bare) == found
        assert torch.equal(state, torch.get_rng_state())
        assert model.config.to_dict() == config
        assert modules == [dict(vars(module)) for module in model.modules()]
        assert classes == [dict(vars(owner)) for owner in owners]
        after = dict([*model.named_parameters(), *model.named_buffers()])
        assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.parametrize("family", STRUCTURE_FAMILIES)
def test_everything_that_was_patched_is_what_it_was(family: str, input_ids: Tensor) -> None:
    model = tiny_model(family).requires_grad_(False)
    owners = [sys.modules[type(model).__module__], nn.Dropout, *{type(module) for module in model.modules()}]
    before, weights = [dict(vars(owner)) for owner in owners], {k: v.clone() for k, v in model.state_dict().items()}
    plain = gradients(model, input_ids)
    with attn_lrp(model):
        assert before != [dict(vars(owner)) for owner in owners]
    with pytest.raises(KeyboardInterrupt), attn_lrp(model):
        raise KeyboardInterrupt
    assert before == [dict(vars(owner)) for owner in owners]
    assert same(plain, gradients(model, input_ids))
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
