"""AttnLRP: rows through which relevance flows matter."""

from engine.selectors.base import ByRelevance, register_selector


@register_selector("lrp", title="LRP", family="attribution", cost="1 forward and backward pass", asks=(("lrp", "abs"),))
class Lrp(ByRelevance):
    """s_i = E |R_i|, R = h * dF/dh under AttnLRP's rules at the Linear's output h.

    Rules: Achtibat et al. 2024, arXiv:2402.05602, from lxt (`engine.models.attnlrp`). F = summed next-token loss, or
    summed target logits under the objective `logit`; E over all predicted tokens, absolute value per token
    first (the paper leaves the order open; signed sums rank badly).
    Llama, Qwen2, Qwen3 and Gemma-3 as lxt has them; other families where their blocks compute the same, tried on the
    model before any score (`engine.models.lrp_by_structure`, `engine.models.lrp_conservation`).
    returns [N], >= 0"""

    method = "lrp"
