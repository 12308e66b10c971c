"""Taylor: rows whose removal changes the loss of the whole text matter, to first order, in either direction."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.scoring_run import ScoringRun


@register_selector(
    "taylor", title="Taylor", family="attribution", cost="1 forward and backward pass, shared with grad_x_input",
    asks=(("grad_x_input", "signed"),),
)  # fmt: skip
class Taylor:
    """s_i = |E h_i * dF/dh_i|, the sum over all tokens first, then the absolute value.

    Equal to |sum_j W_ij * dF/dW_ij + b_i * dF/db_i| over the tokens: LLM-Pruner's vector-wise importance of a row to
    first order, Ma et al. 2023, arXiv:2305.11627, the bias with it, since removing a row removes it too. For feature
    maps Molchanov et al. 2017, arXiv:1611.06440. Effects on different tokens cancel, which they do not in grad_x_input
    and fisher. atp_signed is the same number with its sign. F and E as for lrp.
    returns [N], >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.mean_relevance("grad_x_input", "signed").abs()
