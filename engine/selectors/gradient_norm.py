"""Gradient norm: rows matter to whose output the objective is sensitive, however large that output is."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.scoring_run import ScoringRun


@register_selector(
    "gradient_norm", title="Gradient norm", family="attribution",
    cost="1 forward and backward pass, shared with grad_x_input", asks=(("gradient", "square"),),
)  # fmt: skip
class GradientNorm:
    """s_i = sqrt(E (dF/dh_i)^2), the root mean square over tokens of the plain gradient at the Linear's output h.

    The saliency of Simonyan et al. 2014, arXiv:1312.6034, at a hidden layer, and the norm of a row's gradients over
    samples, which GBLM-Pruner (Das et al. 2023, arXiv:2311.04902) takes of weights. What grad_x_input is without the
    output: the two apart say which of the factors ranks. F and E as for lrp.
    returns [N], >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.mean_relevance("gradient", "square").sqrt()
