"""Magnitude: large weights matter."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.passes import wide
from engine.selectors.scoring_run import ScoringRun


@register_selector("magnitude", title="Magnitude", data_free=True, cost="no pass")
class Magnitude:
    """s_i = mean_j |W_ij|, the mean over input dimension j.
    The paper, Appendix A. Biases take no part.
    weight [d_out, d_in] any float dtype; returns [d_out] per layer, >= 0, accumulated in float32"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.per_layer(lambda linear: wide(linear.weight).abs().mean(dim=1))
