"""Agreement of 7 selectors over 3.5 million rows at once, against scipy's Spearman pair by pair.

    python tests/benchmarks/bench_agreement.py

Ours: every ranking sorted once, then Jaccard of both sublayers at
three rates with its chance level, and Spearman, for all 21 pairs. scipy: the 21 correlations alone.
"""

from __future__ import annotations

import resource
import sys
import time
from itertools import combinations

import numpy as np
import scipy.stats
from rich.console import Console

from engine.studies.audit.agreement import pairwise
from engine.studies.audit.sweep import Ranking

ROWS = 3_500_000
SELECTORS = 7
RATES = (0.2, 0.3, 0.5)
AT_MOST_S = 20.0
AT_MOST_GIB = 4.0
TOLERANCE = 1e-12  # float64 sums over 3.5 million products


def main() -> int:
    """Print times and memory; exit code 1 over a limit or where a number is not scipy's."""
    generator = np.random.default_rng(0)
    common = generator.standard_normal(ROWS, dtype=np.float32)
    rankings = []
    for number in range(SELECTORS):
        scores = number * common + 3 * generator.standard_normal(ROWS, dtype=np.float32)
        if number == SELECTORS - 1:
            scores = np.round(scores, 2)  # thousands of ties per value
        rankings.append(Ranking(str(number), None, scores))
    mlp = generator.random(ROWS) < 0.8
    before_gib = peak_gib()

    start = time.perf_counter()
    found = pairwise(rankings, {"attention": ~mlp, "mlp": mlp}, RATES)
    ours_s, ours_gib = time.perf_counter() - start, peak_gib()

    start = time.perf_counter()
    difference = 0.0
    for a, b in combinations(range(SELECTORS), 2):
        expected = scipy.stats.spearmanr(rankings[a].scores, rankings[b].scores).statistic
        difference = max(difference, abs(found.spearman[a, b] - expected))
    scipy_s, scipy_gib = time.perf_counter() - start, peak_gib()

    out = Console(highlight=False)
    out.print(f"{ROWS:,} rows, {SELECTORS} selectors, rates {', '.join(f'{rate:.0%}' for rate in RATES)}")
    scores_gib = ROWS * SELECTORS * 4 / 2**30
    out.print(f"libraries and scores      {before_gib:19.2f} GiB peak, {scores_gib:.2f} of them the scores")
    out.print(f"all pairs at once         {ours_s:8.2f} s, {ours_gib:.2f} GiB peak of the process")
    out.print(f"scipy, Spearman by pair   {scipy_s:8.2f} s, {scipy_gib:.2f} GiB peak of the process")
    out.print(f"largest difference        {difference:8.1e}   (at most {TOLERANCE:g} wanted)")
    return 0 if ours_s <= AT_MOST_S and ours_gib <= AT_MOST_GIB and difference <= TOLERANCE else 1


def peak_gib() -> float:
    """Highest resident memory of this process so far."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / 2**20 if sys.platform != "darwin" else kilobytes / 2**30


if __name__ == "__main__":
    sys.exit(main())
