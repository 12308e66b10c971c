"""Mean activation: rows with large outputs matter."""

from __future__ import annotations

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.run import ScoringRun


@register_selector("mean_activation", title="Mean activation", cost="1 forward pass, shared with wanda")
class MeanActivation:
    """s_i = E |h_i|, h = the Linear's output, absolute value per token first.

    The paper, Appendix A. E is over the positions that predict a token, as for lrp and ig: all but the
    last of each window.
    returns [N], >= 0
    """

    def score(self, run: ScoringRun) -> Tensor:
        return run.activations().output_mean_abs
