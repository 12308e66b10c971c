"""Integrated gradients: rows whose output carries the way from no input to the input matter."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.prompt_run import PromptRun
from engine.selectors.run import ScoringRun


@register_selector("ig", title="IG", family="attribution", cost="16 forward and backward passes", asks=(("ig", "abs"),))
class IntegratedGradients:
    """s_i = E |(h_i - h_i(0)) * mean_k dF/dh_i(k/16)|, k = 1..16, input embeddings scaled by k/16.

    Sundararajan et al. 2017, arXiv:1703.01365, at a hidden layer in the form of EAP-IG (Hanna et al. 2024,
    arXiv:2403.17806): the paper names only the path, the zero baseline and 16 passes in all. h(0) is the
    output at zero embeddings. F and E as for lrp.
    returns [N], >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.mean_abs_relevance("ig")

    def contrast(self, run: PromptRun) -> Tensor:
        return run.relevance_contrast("ig")
