"""Standard deviation of the output: rows that vary matter, rows that are constant do not."""

from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.scoring_run import ScoringRun


@register_selector("activation_std", title="Activation std", cost="1 forward pass, shared with wanda")
class ActivationStd:
    """s_i = sqrt(E (h_i - E h_i)^2), h = the Linear's output.

    The criterion of variance-based pruning, Berisha et al. 2025, arXiv:2507.12988, there of an MLP's hidden neurons,
    whose mean goes into the next bias. Size of what mean ablation takes away, as mean_activation is of what zero does.
    Divided by the number of tokens, not by one less. E as for mean_activation.
    returns [N], >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.activations().output_variance.sqrt()
