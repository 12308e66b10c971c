"""Random scores: the floor that every selector has to beat."""

import zlib

import numpy as np
import torch
from torch import Tensor

from engine.selectors.base import register_selector
from engine.selectors.prompt_run import PromptRun
from engine.selectors.scoring_run import ScoringRun


@register_selector("random", title="Random", data_free=True, cost="no pass", seeded=True)
class Random:
    """s_i ~ U(0, 1), one ranking per seed.
    Drawn on the CPU whatever the model's device, so that a seed names the same rows everywhere.
    returns [seeds, N] float32 in [0, 1)"""

    def score(self, run: ScoringRun) -> Tensor:
        rankings = [torch.rand(run.rows.n_rows, generator=torch.Generator().manual_seed(seed)) for seed in run.seeds]
        return torch.stack(rankings)

    def contrast(self, run: PromptRun) -> Tensor:
        """U(-1, 1) per row, from the seed and the domain (**choice** of the range: C_comply's)."""
        generator = np.random.default_rng([run.seed, zlib.crc32(run.domain.encode())])
        return torch.from_numpy(generator.uniform(-1, 1, run.rows.n_rows))
