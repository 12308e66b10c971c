"""Wanda, summed over rows: large weights on large inputs matter."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.passes import wide
from engine.selectors.scoring_run import ScoringRun


@register_selector("wanda", title="Wanda", cost="1 forward pass")
class Wanda:
    """s_i = sum_j |W_ij| * RMS(X_j), summed over input dimension j.

    Element score: Sun et al. 2024, arXiv:2306.11695. The row sum is the paper's (Appendix A), since whole rows
    are removed.
    weight [d_out, d_in] any float dtype; rms [d_in] over all calibration tokens
    returns [d_out] per layer, >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        input_rms = iter(run.activations().input_rms)  # one per layer, in the order of `per_layer`
        return run.per_layer(lambda linear: wide(linear.weight).abs() @ next(input_rms).to(wide(linear.weight)))
