"""Every set of fused experts that the installed transformers has, against its own eager forward, in float64."""

import copy
from typing import Any

import pytest
import torch
from families_table import families
from torch import nn

from engine.models.experts import show_experts
from engine.models.rows_of_modules import row_index
from engine.records.errors import InputError

EXPERTS, INNER, HIDDEN, TOKENS = 4, 6, 10, 9
IN_FLOAT32 = ("BeamExperts", "Inkling2Experts", "Inkling2LoopExperts")  # gate or sum, whatever they are given


def with_weights(experts: Any) -> Any:
    """The same module with few small experts."""
    module = copy.deepcopy(experts)
    generator = torch.Generator().manual_seed(0)
    inner = INNER * 2 if module.has_gate else INNER
    sizes = {"gate_up_proj": (inner, HIDDEN), "up_proj": (inner, HIDDEN), "down_proj": (HIDDEN, INNER)}
    for name, parameter in list(module.named_parameters()):
        plain = name.removesuffix("_bias")
        if plain in sizes and name != plain:
            shape = (EXPERTS, sizes[plain][0])
        elif plain in sizes:
            shape = (EXPERTS, *(sizes[name][::-1] if module.is_transposed else sizes[name]))
        else:  # of a norm of what an expert says
            shape = (HIDDEN,)
        owner, _, last = name.rpartition(".")
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        setattr(module.get_submodule(owner), last, nn.Parameter(values, requires_grad=False))
        assert parameter.is_meta
    module.num_experts = EXPERTS
    module.config._experts_implementation = "eager"
    return module.eval()


@pytest.mark.long
def test_every_fused_expert_class_computes_the_same() -> None:
    """But for the order in which a product sums: 1e-13 of the largest entry, 1e-6 where a gate computes in float32."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(TOKENS, HIDDEN, generator=generator, dtype=torch.float64)
    weights, chosen = torch.rand(TOKENS, EXPERTS, generator=generator, dtype=torch.float64).topk(2)
    checked, refused = set(), {}
    for _, model in families():
        try:
            row_index(copy.deepcopy(model))
        except InputError as error:
            refused[type(model).__name__] = str(error)
        for experts in model.modules():
            name = type(experts).__name__
            if name in checked or not hasattr(experts, "is_concatenated"):
                continue
            module = with_weights(experts)
            expected = module(hidden, chosen, weights)
            show_experts(module)
            error = float((module(hidden, chosen, weights) - expected).abs().max() / expected.abs().max())
            assert error <= (1e-6 if name in IN_FLOAT32 else 1e-13), name
            first = getattr(module, "2")
            first.up_proj.weight[1] = 0
            if first.up_proj.bias is not None:
                first.up_proj.bias[1] = 0
            said = first.up_proj(hidden)
            assert not said[:, 1].any(), name
            assert said[:, 0].all(), name
            fused = module.gate_up_proj if module.has_gate else module.up_proj
            assert int((fused == 0).sum()) == HIDDEN, name
            checked.add(name)
    assert {"MixtralExperts", "GptOssExperts", "NemotronHExperts", "AriaExperts", "DeepseekV3Experts"} <= checked
    assert len(checked) >= 30, sorted(checked)
    assert all("\n" not in told for told in refused.values())
