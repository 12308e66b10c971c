"""RIA, summed over rows: weights that are large among those of their row and of their column, on large inputs."""

import torch
from torch import Tensor, nn

from engine.selectors.base import register_selector
from engine.selectors.passes import wide
from engine.selectors.scoring_run import ScoringRun


@register_selector("ria", title="RIA", cost="1 forward pass, shared with wanda")
class Ria:
    """s_i = sum_j (|W_ij| / sum_k |W_kj| + |W_ij| / sum_k |W_ik|) * RMS(X_j)^(1/2).

    Element score: relative importance and activations, Zhang et al., ICLR 2024 (doi:10.20944/preprints202310.1487, not
    on arXiv), with their power of 1/2. The root mean square stands for the norm over tokens: a common factor, left out
    so that scores of more text compare. The row sum is ours, after wanda's (**choice**). In it the second fraction
    averages the sizes of the inputs, so that rows differ mostly by the columns of which they have a large share. A row
    or column of zeros counts as 0.
    weight [d_out, d_in] any float dtype; returns [d_out] per layer, >= 0"""

    def score(self, run: ScoringRun) -> Tensor:
        input_rms = iter(run.activations().input_rms)  # one per layer, in the order of `per_layer`

        def of_layer(linear: nn.Linear) -> Tensor:
            sizes = wide(linear.weight).abs()
            roots = next(input_rms).to(sizes).sqrt()
            columns, rows = sizes.sum(0), sizes.sum(1)
            shares = torch.where(columns > 0, roots / columns, 0.0)  # 0/0 is 0
            return sizes @ shares + torch.where(rows > 0, (sizes @ roots) / rows, 0.0)

        return run.per_layer(of_layer)
