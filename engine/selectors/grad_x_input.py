"""Gradient times activation: rows matter whose output the objective leans on, to first order."""

from engine.selectors.base import ByRelevance, register_selector


@register_selector(
    "grad_x_input", title="Gradient x input", family="attribution", cost="1 forward and backward pass",
    asks=(("grad_x_input", "abs"),),
)  # fmt: skip
class GradientTimesInput(ByRelevance):
    """s_i = E |h_i * dF/dh_i|, plain gradients at the Linear's output h.

    What removing the row's output at one token would change of F, to first order: h_i goes to 0. Shrikumar et
    al. 2016, arXiv:1605.01713, at a hidden layer; what lrp is without AttnLRP's rules. Not one of the paper's
    seven. F and E as for lrp.
    returns [N], >= 0"""

    method = "grad_x_input"
