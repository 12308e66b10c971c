"""Which rewrites an architecture has a place for, and what is said where it has none."""

import pytest
import torch
from tiny_models import load_tiny

from engine.edits.edit import UNEDITED
from engine.interventions.rewrite_names import REWRITES
from engine.interventions.rewrites import NoRewriteError, Rescaling, make_rewrite, rewritten
from engine.measures.logit_bits import LogitBits

# Families whose blocks have no place for them; LayerNorm is no RMS norm, OLMo's has no weight.
WITHOUT = {
    "phi": {"neurons", "norms", "norms-whole"},
    "gpt_neox": {"neurons", "values", "norms", "norms-whole"},
    "olmo": {"norms", "norms-whole"},
}


def test_every_family_is_bit_equal_or_says_why_not(tiny_family, tiny_windows):
    family, measure = tiny_family.model.config.model_type, LogitBits(tiny_windows)
    before, refused = measure.measure(tiny_family, UNEDITED), set()
    for name in REWRITES:
        try:
            rewrite = make_rewrite(name, tiny_family)
        except NoRewriteError:
            refused.add(name)
            continue
        with rewritten(tiny_family, rewrite) as inside:
            assert measure.measure(inside, UNEDITED).same_function(before) == (name != "norms-whole")
    assert refused == WITHOUT.get(family, set())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("neurons", r"2 of 2 MLPs: GPTNeoXMLP \(dense_h_to_4h, dense_4h_to_h\) has no gate_proj beside up_proj"),
        ("values", r"2 of 2 attentions: GPTNeoXAttention has no v_proj and o_proj of its own \(query_key_value, dense"),
        ("norms", r"4 of 4 norms: LayerNorm is no RMS norm"),
    ],
)
def test_what_an_architecture_does_not_allow_has_a_reason(tmp_path, name, why):
    with pytest.raises(NoRewriteError, match=why):
        make_rewrite(name, load_tiny("gpt_neox", tmp_path))


def test_parts_that_cannot_be_rewritten_are_named(tiny_llama):
    """A norm between v_proj and o_proj in one block only; an MLP with more than a gate in the other."""
    attention, mlp = tiny_llama.model.model.layers[0].self_attn, tiny_llama.model.model.layers[1].mlp
    try:
        attention.v_norm = torch.nn.RMSNorm(6)
        mlp.sub_norm = torch.nn.RMSNorm(28)
        values, neurons = (make_rewrite(name, tiny_llama) for name in ("values", "neurons"))
    finally:
        del attention.v_norm, mlp.sub_norm
    assert isinstance(values, Rescaling)
    assert len(values.links) == len(neurons.links) == 1
    assert values.left_out == "1 of 2 attentions: LlamaAttention has v_norm, which may stand between v_proj and o_proj"
    assert neurons.left_out.startswith("1 of 2 MLPs: LlamaMLP has more between up_proj and down_proj")


def test_norm_weights_from_one_to_two_leave_nothing_to_fold(tiny_llama):
    norms = [module for name, module in tiny_llama.model.named_modules() if name.endswith("layernorm")]
    old = [norm.weight for norm in norms]
    try:
        for norm in norms:
            norm.weight = torch.nn.Parameter(torch.linspace(1, 1.9, 20), requires_grad=False)
        with pytest.raises(NoRewriteError, match="nothing to fold"):
            make_rewrite("norms", tiny_llama)
    finally:
        for norm, weight in zip(norms, old, strict=True):
            norm.weight = weight
