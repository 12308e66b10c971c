"""Relevance that arrives at the input, and what is noticed where a rule is missing: the check before any score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_attnlrp import gradients, same
from tiny_models import LRP_FAMILIES, STRUCTURE_FAMILIES, tiny_config, tiny_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from engine.models import attnlrp, lrp_conservation
from engine.models.attnlrp import attn_lrp, check_rules
from engine.models.lrp_by_structure import Structure, structure
from engine.models.lrp_conservation import allowed, logits_before, missing_relevance, short_text
from engine.models.norms import NormForm
from engine.records.errors import InputError


@pytest.fixture
def input_ids() -> Tensor:
    return torch.randint(3, 290, (2, 11), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", [*LRP_FAMILIES, *STRUCTURE_FAMILIES])
def test_relevance_arrives_at_the_input_and_the_logits_stay(family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family).to(dtype).requires_grad_(False)
    text = short_text(model)
    before = logits_before(model)
    modelings = attnlrp._rules_of(model).modelings
    plain = missing_relevance(model, text, modelings)
    with attn_lrp(model):
        assert torch.equal(before, logits_before(model))
        under = missing_relevance(model, text, modelings)
    assert under.most < allowed(dtype) / 3
    assert under.blocks == plain.blocks == 2
    assert plain.at_input > 3 * allowed(dtype)


def leave_out(rules: Any, kind: str) -> Any:
    """The rules without those of one kind."""
    kinds: dict[str, Callable[[Any], bool]] = {
        "norm": lambda of: "Norm" in of.__name__,
        "MLP": lambda of: "MLP" in of.__name__,
    }
    patches = {of: patch for of, patch in rules.patches.items() if kind == "attention" or not kinds[kind](of)}
    return attnlrp._Rules(rules.family, patches, () if kind == "attention" else rules.modelings, rules.by_structure)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["norm", "MLP", "attention"])
def test_a_missing_rule_is_noticed_and_nothing_is_left_behind(
    kind: str, dtype: torch.dtype, input_ids: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("mistral").to(dtype).requires_grad_(False)
    before = gradients(model, input_ids)
    whole = attnlrp._install
    monkeypatch.setattr(attnlrp, "_install", lambda rules, *more: whole(leave_out(rules, kind), *more))
    with pytest.raises(InputError, match="no rules for MistralForCausalLM.*of the relevance is missing"):
        check_rules(model)
    assert same(before, gradients(model, input_ids))
    monkeypatch.undo()
    assert check_rules(model) == "mistral"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_capped_logits_are_noticed(dtype: torch.dtype) -> None:
    """Nothing in the blocks of a Gemma-2 without its cap in attention says that its logits have one; relevance does."""
    caps = {"attn_logit_softcapping": None, "final_logit_softcapping": 5.0}
    model = tiny_model("gemma2", **caps).to(dtype).requires_grad_(False)
    assert isinstance(structure(model), Structure)
    with pytest.raises(InputError, match=rf"0\.\d+ after the head, expected at most {allowed(dtype)} in"):
        check_rules(model)
    assert check_rules(tiny_model("gemma2", **{**caps, "final_logit_softcapping": None}).to(dtype)) == "gemma2"


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ("lm_head.weight", "cannot be tried on MistralForCausalLM: its logits are no finite numbers"),
        # On some processors sdpa hides it from the logits, and relevance shows it.
        ("model.layers.1.self_attn.q_proj.weight", "no finite numbers|nan of the relevance is missing at the input"),
    ],
)
def test_what_is_not_a_number_is_noticed(weight: str, said: str) -> None:
    model = tiny_model("mistral").requires_grad_(False)
    model.get_parameter(weight)[0, 0] = torch.nan
    with pytest.raises(InputError, match=said):
        check_rules(model)


def test_relevance_that_is_not_a_number_is_noticed_where_the_logits_are() -> None:
    model = tiny_model("mistral").requires_grad_(False)

    def spoil(_module: nn.Module, _args: Any, output: Any) -> None:
        hidden = output if isinstance(output, torch.Tensor) else output[0]
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: torch.full_like(gradient, torch.nan))

    model.model.layers[1].register_forward_hook(spoil)
    with pytest.raises(InputError, match="nan of the relevance is missing at the input"):
        check_rules(model)


def test_a_rule_that_changes_the_logits_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("olmo2").to(torch.bfloat16).requires_grad_(False)
    read = structure(model)
    assert isinstance(read, Structure)
    assert {form.scaling for form in read.norms.values()} == {"olmo2"}
    check_rules(model)
    lrp_conservation._tried.discard(model)
    early = {of: NormForm(form.eps, "llama") for of, form in read.norms.items()}  # casts back before the weight
    wrong = Structure(early, read.mlps, read.modelings)
    monkeypatch.setattr(attnlrp, "_structure", lambda _: wrong)
    with pytest.raises(InputError, match="its logits are others, expected the same to the bit"):
        check_rules(model)


def test_a_model_is_tried_once_and_without_weights_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    whole = attnlrp.try_out

    def noted(model: Any, *more: Any) -> None:
        tried.append(model)
        whole(model, *more)

    monkeypatch.setattr(attnlrp, "try_out", noted)
    model, llama = tiny_model("mistral").requires_grad_(False), tiny_model("llama").requires_grad_(False)
    with torch.device("meta"):
        bare = AutoModelForCausalLM.from_config(tiny_config("mistral"))
    for one in (model, model, llama, bare):
        check_rules(one)
    assert tried == [model]
