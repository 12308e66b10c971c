"""The mean of a similarity over all pairs of draws, with an interval over the draws. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.stats.intervals import student_t
from engine.stats.uncertainty import CONFIDENCE


def over_draws(
    pairs: Sequence[float], draws: int, confidence: float = CONFIDENCE
) -> tuple[float, float] | tuple[None, None]:
    """Ends of the interval of the mean of `pairs` [draws (draws - 1) / 2], in the order of `numpy.triu_indices`.

    Pairs share draws and are not independent: the error is the jackknife's over draws, v = (n - 1) / n sum of
    (m_i - mean of m_i)^2, m_i the mean of the pairs without draw i (Efron and Stein 1981: not too small on average),
    with Student's t of n - 1 degrees. Simulated for 3, 5 and 8 draws it covers the true mean in .94 to .98 of cases;
    where some draws are much noisier than others (log-normal, sigma .5) in .83 to .96. (None, None) for fewer than 3
    draws, or where a pair has no number.
    """
    values = np.asarray(pairs, dtype=np.float64)
    if draws < 3 or not np.isfinite(values).all():
        return None, None
    first, second = np.triu_indices(draws, 1)
    without = np.array([values[(first != draw) & (second != draw)].mean() for draw in range(draws)])
    stderr = math.sqrt((draws - 1) / draws * float(np.square(without - without.mean()).sum()))
    half = student_t(draws - 1, confidence) * stderr
    return float(values.mean()) - half, float(values.mean()) + half
