"""FLAP, for rows: outputs that fluctuate, by the size of the weights that make them."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.passes import wide
from engine.selectors.scoring_run import ScoringRun


@register_selector("flap", title="FLAP", cost="1 forward pass, shared with wanda")
class Flap:
    """s_i = Var(h_i) * sum_j W_ij^2, the variance over tokens of the Linear's output h.

    FLAP, An et al. 2024, arXiv:2312.11983, scores an *input* channel j of a Linear: Var(X_j) * sum_i W_ij^2, the
    channel's fluctuation by the norm of the column that reads it. We remove output channels, so output stands for input
    here and row for column (**choice**). The column that reads a row has no general form: a gate's row is multiplied,
    a query's goes into a softmax. So the row's norm is in it twice, in Var(h_i) too. FLAP's standard scores within each
    layer, before one threshold for all, are left out (**choice**: no selector here normalises by layer), and so is the
    bias that makes up for the mean. Divided by the number of tokens, not by one less. E as for mean_activation.
    weight [d_out, d_in] any float dtype; returns [N], >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        squared_norm = run.per_layer(lambda linear: wide(linear.weight).square().sum(1))
        return run.activations().output_variance * squared_norm
