"""Attribution patching with its sign: rows matter whose removal would do harm, and rows that do harm come last."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.scoring_run import ScoringRun


@register_selector(
    "atp_signed", title="AtP, signed", family="attribution",
    cost="1 forward and backward pass, shared with grad_x_input", asks=(("grad_x_input", "signed"),),
)  # fmt: skip
class AttributionPatchingSigned:
    """s_i = E (0 - h_i) * dF/dh_i, what putting 0 for the row's output adds to the loss F, to first order.

    Attribution patching, Syed et al. 2023, arXiv:2310.10348, and Kramar et al. 2024, arXiv:2403.00745, with 0 for the
    patch. Below 0: removing the row alone is estimated to help, so that LeRF removes what helps most first. Single rows
    are estimated, not sets. Under the objective `logit`, where more is better, the sign turns, so that higher is more
    important there too. F and E as for lrp; its absolute value is taylor.
    returns [N], of either sign"""

    def score(self, run: ScoringRun) -> Tensor:
        harm = -1 if run.objective == "loss" else 1
        return harm * run.mean_relevance("grad_x_input", "signed")
