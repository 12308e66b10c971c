"""Fisher: rows whose first-order effects are large somewhere matter, whatever their signs."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.scoring_run import ScoringRun


@register_selector(
    "fisher", title="Fisher", family="attribution", cost="1 forward and backward pass, shared with grad_x_input",
    asks=(("grad_x_input", "square"),),
)  # fmt: skip
class Fisher:
    """s_i = sqrt(E (h_i * dF/dh_i)^2), the root mean square over tokens, plain gradients at the Linear's output h.

    h_i * dF/dh_i is the gradient of F for a gate of 1 on the row's output at a token, so that its mean square is the
    gate's empirical Fisher information: Fisher pruning, Theis et al. 2018, arXiv:1801.05787, with the token as the
    sample (**choice**: there an image, whose positions are summed before the square). SNIP's gates, Lee et al. 2019,
    arXiv:1810.02340, are weights', and summed before the absolute value. The root changes no ranking.
    F and E as for lrp.
    returns [N], >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.mean_relevance("grad_x_input", "square").sqrt()
