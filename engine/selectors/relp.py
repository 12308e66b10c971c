"""RelP: rows matter whose way from their mean output carries relevance."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.scoring_run import ScoringRun


@register_selector(
    "relp", title="RelP", family="attribution",
    cost="1 forward pass, shared with wanda, then 1 forward and backward pass, shared with lrp",
    asks=(("relp", "abs"),),
)  # fmt: skip
class RelevancePatching:
    """s_i = E |(h_i - E h_i) * dF/dh_i|, dF/dh under AttnLRP's rules at the Linear's output h.

    Relevance patching, Rezaei Jafari et al. 2025, arXiv:2508.21258: attribution patching with LRP's propagation
    coefficient in the place of the gradient. There the difference is to the output on another prompt; here to the mean
    over the calibration text, as in mean ablation (**choice**), absolute value per token first as for lrp (**choice**).
    The rules are lrp's, AttnLRP's: attention's weights carry relevance, where the paper's rule for attention takes them
    as constants. F and E as for lrp.
    At nested calibration sizes each has its own mean and its own pass.
    returns [N], >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.mean_abs_relevance("relp")
