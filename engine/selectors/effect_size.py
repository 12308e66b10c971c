"""Effect size: rows that promote complying more with risk prompts than with base prompts, by how reliably they do."""

import torch
from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.prompt_run import PromptRun


@register_selector(
    "effect_size", title="Effect size", family="attribution",
    cost="1 forward and backward pass over the prompts, shared with grad_x_input", protected_by="grad_x_input",
)  # fmt: skip
class EffectSize:
    """C_comply = d / sqrt(d^2 + 4), d = (mean of I over risk - mean of I over base) / pooled deviation.

    I(x) = max(-R_i(x), 0), R = h * dm/dh summed over positions: how far row i promotes complying with prompt x, the
    quantity that Algorithm 1 ranks, under plain gradients. d is Cohen's (1988), its pooled variance the mean of the
    sides' own, each divided by its number of prompts; in this form it is the point-biserial correlation of I with
    the side, in [-1, 1] and comparable between layers, so that nothing is ranked within them (**choice**).

    It finds rows to remove so that refusal is installed, and no others: I counts relevance against refusing only, and
    the difference has one direction. It gives text no scores; grad_x_input's protect rows."""

    def contrast(self, run: PromptRun) -> Tensor:
        risk, base = run.compliance("grad_x_input")
        difference = risk.mean - base.mean
        pooled_variance = (risk.variance + base.variance) / 2
        spread = (difference.square() + 4 * pooled_variance).sqrt()
        return torch.where(spread > 0, difference / spread, 0.0)
