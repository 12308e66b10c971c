"""lrp of families that lxt does not name: whose rules they get, that those are AttnLRP's, and who is refused."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
import torch
from accelerate.hooks import attach_execution_device_hook
from slow_attnlrp import Slow
from test_attnlrp import collected, gradients, largest_logit, same
from tiny_models import LRP_FAMILIES, STRUCTURE_FAMILIES, tiny_config, tiny_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.models.gemma3.modeling_gemma3 import Gemma3MLP, Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralMLP, MistralRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from engine.models import attnlrp
from engine.models.attnlrp import attn_lrp, check_rules, model_family
from engine.models.lrp_by_structure import Structure, norm_rule, structure
from engine.models.rows import row_index
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
    "gemma": (
        {"after": False, "factor": 1.0, "rotary": (True, True), "window": None},
        (1.0, 1.0),
    ),
}


class GateIsUp(MistralMLP):
    """The activation on the other factor."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


class SquaredLlama(LlamaMLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x) ** 2)


class Respelled(MistralMLP):
    """The same with other names, one step at a time."""

    def forward(self, states: Tensor) -> Tensor:
        """Documentation is no difference."""
        gate: Tensor = self.act_fn(self.gate_proj(states))
        up = self.up_proj(states)
        return self.down_proj(gate * up)


class Centred(MistralRMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = hidden_states - hidden_states.mean(-1, keepdim=True)
        return super().forward(hidden_states)


class Shouting(MistralAttention):
    def forward(self, hidden_states: Tensor, *inputs: Any, **more: Any) -> Any:
        hidden_states.mul_(2)
        return super().forward(hidden_states, *inputs, **more)


class Doubling(MistralAttention):
    """An expression that doubles with every step."""

    def forward(self, hidden_states: Tensor, *inputs: Any, **more: Any) -> Any:
        a = hidden_states + hidden_states * hidden_states
        b = a + a * a
        c = b + b * b
        d = c + c * c
        e = d + d * d
        f = e + e * e
        g = f + f * f
        return g + g, None


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


@pytest.mark.parametrize("family", LRP_FAMILIES)
def test_structure_gives_the_families_of_lxt_the_rules_that_lxt_gives_them(family: str, monkeypatch: Any) -> None:
    model = tiny_model(family)
    expected = {of: patch for of, patch in attnlrp._rules_of(model).patches.items() if isinstance(of, type)}
    assert attnlrp._rules_of(model).by_structure is False
    monkeypatch.setattr(attnlrp, "FAMILIES", ())
    found = attnlrp._rules_of(model)
    assert found.by_structure is True
    assert found.modelings == (sys.modules[type(model).__module__],)
    assert {of: (patch.args, patch.keywords) for of, patch in found.patches.items()} == {
        of: (patch.args, patch.keywords) for of, patch in expected.items()
    }


class Rounded(nn.Dropout):
    def forward(self, input: Tensor) -> Tensor:
        return input.round()


def test_only_dropout_itself_is_nothing() -> None:
    model = tiny_model("phi3")
    assert "Phi3Attention" in str(structure(model))
    model.model.layers[0].resid_mlp_dropout = Rounded()
    assert "`self.resid_mlp_dropout(self.mlp(" in str(structure(model))


def test_norms_are_told_apart() -> None:
    assert norm_rule(LlamaRMSNorm) == norm_rule(MistralRMSNorm) == "llama"
    assert (norm_rule(Olmo2RMSNorm), norm_rule(Gemma3RMSNorm)) == ("olmo2", "gemma3")
    assert [norm_rule(of) for of in (nn.LayerNorm, nn.RMSNorm, Centred, LlamaMLP, nn.Identity)] == [None] * 5


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("phi3", "Phi3Attention.forward (attention) has `.*self.qkv_proj(x)"),
        ("gemma2", "`attention(..., softcap=self.attn_logit_softcapping)` where LlamaAttention's has `attention(...)`"),
        ("bitnet", "BitNetMLP.forward (MLP) has `self.ffn_sub_norm(.*)` (BitNetRMSNorm) where LlamaMLP's has"),
        ("olmo", "OlmoDecoderLayer.forward (block) has `self.input_layernorm(x)` (OlmoLayerNorm)"),
        ("phi", "PhiDecoderLayer.forward (block) has `.*` where LlamaDecoderLayer's has"),
        ("mixtral", "MixtralSparseMoeBlock.forward (MLP) has"),
        ("gpt2", "GPT2Block.forward (block) cannot be compared, it has `if encoder_hidden_states is not None`"),
    ],
)
def test_a_refusal_says_which_part_differs_in_one_line(family: str, said: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config(family))
    with pytest.raises(InputError) as caught:
        model_family(model)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"lrp has no rules for {type(model).__name__} ({family}): ")
    assert re.search(".*".join(map(re.escape, said.split(".*"))), message), message
    assert "supported families: llama, qwen2, qwen3, gemma3, and those whose blocks compute the same" in message
    assert message.endswith("the selectors other than lrp, relp and consensus2 still work")


@pytest.mark.parametrize(
    ("family", "of", "by", "said"),
    [
        ("mistral", MistralMLP, GateIsUp, "GateIsUp.forward (MLP) has `self.gate_proj(x) * self.act_fn(self.up_pro"),
        ("llama", LlamaMLP, SquaredLlama, "SquaredLlama.forward (MLP) has `self.up_proj(x) ** 2`"),
        ("mistral", MistralRMSNorm, Centred, "`self.input_layernorm(x)` (Centred) where LlamaDecoderLayer's has `x`"),
        ("mistral", MistralAttention, Doubling, "(more than 5,000 parts)"),
        ("mistral", MistralAttention, Shouting, "cannot be compared, it has `hidden_states.mul_(2)`"),
    ],
)  # fmt: skip
def test_a_changed_class_is_refused(family: str, of: type[nn.Module], by: type[nn.Module], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        check_rules(replaced(family, of, by))


def test_rules_by_structure_reach_modules_with_hooks_of_accelerate(input_ids: Tensor) -> None:
    plain, hooked = tiny_model("olmo2").requires_grad_(False), tiny_model("olmo2").requires_grad_(False)
    attach_execution_device_hook(hooked, "cpu")
    expected, found = collected(plain, "lrp", input_ids), collected(hooked, "lrp", input_ids)
    assert all(torch.equal(found[name], values) for name, values in expected.items())


def test_names_and_steps_are_no_difference(input_ids: Tensor) -> None:
    model, changed = tiny_model("mistral").requires_grad_(False), replaced("mistral", MistralMLP, Respelled)
    expected, found = collected(model, "lrp", input_ids), collected(changed, "lrp", input_ids)
    assert all(torch.equal(found[name], values) for name, values in expected.items())


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


def test_a_class_that_inherits_its_forward_is_patched_where_it_is_written() -> None:
    class Named(LlamaRMSNorm):
        pass

    class Called(MistralAttention):
        pass

    model = replaced("mistral", MistralAttention, Called)
    model.model.norm.__class__ = Named
    found = structure(model)
    assert isinstance(found, Structure)
    assert found.norms == {MistralRMSNorm: "llama", LlamaRMSNorm: "llama"}
    assert found.modelings == (sys.modules[MistralAttention.__module__],)
    assert check_rules(model) == "mistral"


def test_other_gated_mlps_have_the_same_expression() -> None:
    """Gemma's MLP is Llama's by its text."""
    model = tiny_model("gemma3_text")
    assert isinstance(model.model.layers[0].mlp, Gemma3MLP)
    assert isinstance(structure(model), Structure)
    assert len(row_index(model).layers) == 14
