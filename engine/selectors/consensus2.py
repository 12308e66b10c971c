"""Consensus of LRP and IG by Borda count."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.prompt_run import PromptRun
from engine.selectors.scoring_run import ScoringRun
from engine.stats.removal_order import rank


@register_selector(
    "consensus2", title="Consensus-2", family="attribution", cost="those of lrp and ig", needs=("lrp", "ig")
)
class Consensus2:
    """s_i = (rank_lrp(i) + rank_ig(i)) / 2N, rank 0 = least important, ties by row id.

    The paper, Appendix A, states the ranks the other way round, under which LeRF would remove the most
    important rows; its results need this direction.
    returns [N] in [0, 1)"""

    def score(self, run: ScoringRun) -> Tensor:
        return torch.from_numpy(borda(run.scores("lrp").numpy(), run.scores("ig").numpy()))

    def contrast(self, run: PromptRun) -> Tensor:
        """The mean of lrp's and ig's: Borda over their per-layer ranks, done once per side, gives the same number."""
        return (run.contrast("lrp") + run.contrast("ig")) / 2


def borda(first: npt.ArrayLike, second: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(rank in `first` + rank in `second`) / 2N, ranks from 0 = lowest; both [N], returns [N]."""
    ranks = [rank(scores) for scores in (first, second)]
    return (ranks[0] + ranks[1]) / (2 * len(ranks[0]))
