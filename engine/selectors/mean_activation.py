"""Mean activation: rows with large outputs matter."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.prompt_run import PromptRun
from engine.selectors.scoring_run import ScoringRun
from engine.selectors.window_sums import prompt_activations


@register_selector("mean_activation", title="Mean activation", cost="1 forward pass, shared with wanda")
class MeanActivation:
    """s_i = E |h_i|, h = the Linear's output, absolute value per token first.

    The paper, Appendix A. E is over the positions that predict a token, as for lrp and ig: all but the
    last of each window.
    returns [N], >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.activations().output_mean_abs

    def contrast(self, run: PromptRun) -> Tensor:
        """r(E abs h, risk) - r(E abs h, base), E over all tokens of the prompts."""
        return run.rank_difference("mean_activation", lambda batch: prompt_activations(run.loaded, batch))
