"""Weight norm: rows with long weight vectors matter."""

import torch
from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.passes import wide
from engine.selectors.scoring_run import ScoringRun


@register_selector("weight_norm", title="Weight norm", data_free=True, cost="no pass")
class WeightNorm:
    """s_i = sqrt(sum_j W_ij^2), the Euclidean norm of the row.

    The filter norm of soft filter pruning, He et al. 2018, arXiv:1808.06866; with the sum of absolute values (Li et al.
    2017, arXiv:1608.08710) it would be magnitude times d_in. Biases take no part.
    weight [d_out, d_in] any float dtype; returns [d_out] per layer, >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        return run.per_layer(lambda linear: torch.linalg.vector_norm(wide(linear.weight), dim=1))
