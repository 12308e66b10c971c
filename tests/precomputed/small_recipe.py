"""A recipe of a few steps for a model of a few thousand weights, and what its tests share."""

import torch

from precomputed.recipe.train import Plan, Stage

SMALL = Plan(
    hidden=32, ffn=40, blocks=4, heads=4, kv_heads=2, length=128, bf16=False,
    planted=3, planted_blocks=(1, 3), probed=1,
    language=Stage(3, 2, 6, 4e-3, 1.0, 1.0, 0.3, dropped=0.1),
    further=Stage(3, 2, 6, 4e-3, 1.0, 1.0, 0.3),
    weaken=Stage(3, 2, 6, 4e-3, 1.0, 1.0, 0.7, dropped=0.1),
)  # fmt: skip


def hooks(model: torch.nn.Module) -> int:
    return sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules())
