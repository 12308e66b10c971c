"""Integrated gradients: rows whose output carries the way from no input to the input matter."""

from engine.selectors.base import ByRelevance, register_selector


@register_selector("ig", title="IG", family="attribution", cost="16 forward and backward passes", asks=(("ig", "abs"),))
class IntegratedGradients(ByRelevance):
    """s_i = E |(h_i - h_i(0)) * mean_k dF/dh_i(k/16)|, k = 1..16, input embeddings scaled by k/16.

    Sundararajan et al. 2017, arXiv:1703.01365, at a hidden layer in the form of EAP-IG (Hanna et al. 2024,
    arXiv:2403.17806): the paper names only the path, the zero baseline and 16 passes in all. h(0) is the
    output at zero embeddings. F and E as for lrp.
    returns [N], >= 0"""

    method = "ig"
