"""Conductance: integrated gradients' path, each step weighed by how far the row's output really moved in it."""

from engine.selectors.base import ByRelevance, register_selector


@register_selector(
    "ig_conductance", title="IG conductance", family="attribution", cost="16 forward and backward passes",
    asks=(("ig_conductance", "abs"),),
)  # fmt: skip
class IgConductance(ByRelevance):
    """s_i = E |sum_k dF/dh_i(k/16) * (h_i(k/16) - h_i((k-1)/16))|, k = 1..16, input embeddings scaled by k/16.

    Dhamdhere et al. 2018, arXiv:1805.12233: the other reading of integrated gradients at a hidden layer. h(0)
    is the output at zero embeddings. The gradient is taken at the end of each step, since at zero embeddings a
    normalised model's is close to singular; the first step counts, since early layers cover most of their way
    in it. Rules that differ in either (captum's `riemann_left`, `riemann_right`) give very other numbers there.
    Not one of the paper's seven. F and E as for lrp.
    returns [N], >= 0"""

    method = "ig_conductance"
