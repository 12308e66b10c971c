"""Rates of successes with their uncertainty."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from engine.records.errors import InputError


class Interval(NamedTuple):
    low: float
    high: float


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval for a binomial rate, both ends in [0, 1] (E. B. Wilson 1927).
    (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), p = successes/n, z the normal quantile.
    `InputError` unless n > 0 and 0 <= successes <= n: without trials there is no rate, and none is invented."""
    if n <= 0 or not 0 <= successes <= n:
        raise InputError(f"a rate needs 0 <= successes <= n and n > 0, got {successes} of {n}")
    return wilson_of_rate(successes / n, n, confidence)


def wilson_of_rate(p: float, n: float, confidence: float = 0.95) -> Interval:
    """Wilson's interval of a rate p on n trials; p * n need not be whole (a mean of several rates), nor n (trials that
    depend on each other are worth fewer)."""
    if n <= 0 or not 0 <= p <= 1:
        raise InputError(f"a rate needs 0 <= p <= 1 and n > 0, got {p} on {n}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be in (0, 1), got {confidence}; write 0.95")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and n successes the ends are 0 and 1 exactly; rounding would leave 1e-17 there.
    low = 0.0 if p == 0 else (centre - half) / scale
    high = 1.0 if p == 1 else (centre + half) / scale
    return Interval(low, high)


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The exact interval of a binomial rate (Clopper and Pearson 1934): each end is missed by (1 - confidence) / 2 of
    samples at most, however small n is.

    The lower end is the rate at which so many successes or more have that probability, the upper the rate at which so
    many or fewer have it. An upper bound of confidence c is the upper end at 2 c - 1. `InputError` as of `wilson`."""
    if n <= 0 or not 0 <= successes <= n or not 0 < confidence < 1:
        raise InputError(
            f"a rate needs 0 <= successes <= n, n > 0 and confidence in (0, 1), got {successes} of {n}, {confidence}"
        )
    from scipy.special import betaincinv  # here, since readers of tables do not need it

    tail = (1 - confidence) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return Interval(low, high)


def student_t(degrees: float, confidence: float = 0.95) -> float:
    """The two-sided quantile t of Student's distribution: P(|T| <= t) = confidence; at infinite degrees the normal one.
    Any positive degrees: sums of variances have degrees that are no whole numbers (Satterthwaite)."""
    if not degrees > 0 or not 0 < confidence < 1:
        raise InputError(f"Student's t needs degrees above 0 and confidence in (0, 1), got {degrees}, {confidence}")
    if math.isinf(degrees):
        return NormalDist().inv_cdf((1 + confidence) / 2)
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls; here, since readers of tables do not need it

    return float(stdtrit(degrees, (1 + confidence) / 2))


def two_sided_p(t: float, degrees: float) -> float:
    """P(|T| >= abs(t)) of Student's distribution; at infinite degrees of the normal one."""
    if not degrees > 0 or math.isnan(t):
        raise InputError(f"a p of Student's t needs a number and degrees above 0, got {t} and {degrees}")
    if math.isinf(degrees):
        return math.erfc(abs(t) / math.sqrt(2))
    from scipy.special import stdtr  # here, since readers of tables do not need it

    return 2 * float(stdtr(degrees, -abs(t)))


def clustered_wilson(successes: Sequence[int], trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's interval of p = the mean over clusters, at the number of independent trials that its variance is worth.

    successes: of each of n clusters, all of `trials` trials; rates p_i = successes_i / trials, p their mean.

        variance v = sum (p_i - p)^2 / (n (n - 1)), the ratio estimator's for clusters of one size
        effective trials e = p (1 - p) / v * (z / t)^2, cut to [n, n * trials]

    t is Student's quantile with n - 1 degrees, since v is estimated (Korn and Graubard 1998; Wilson's form of it:
    Dean and Pagano 2015). With one trial per cluster, or where all trials of a cluster agree, e = n: Wilson's interval
    over clusters. Where no cluster differs from the others (all refuse, say) v tells nothing, and e = n as well
    (**choice**: rather too wide). Seen in simulations of beta-binomial replies (20 to 100 prompts, 3 or 10 replies,
    rates .05 to .5, any correlation): coverage .93 to .97, for rates up to .1 of 40 or fewer prompts .89 to .97.
    `InputError` without clusters or trials, or for more successes than trials."""
    n = len(successes)
    if n < 1 or trials < 1 or not all(0 <= one <= trials for one in successes):
        raise InputError(f"a rate over clusters needs 0 to {trials} successes in each, got {list(successes)[:10]}")
    rates = [one / trials for one in successes]
    p = sum(successes) / (n * trials)
    variance = sum((rate - p) ** 2 for rate in rates) / (n * (n - 1)) if n > 1 else 0.0
    effective = float(n)
    if variance > 0:
        shrink = NormalDist().inv_cdf((1 + confidence) / 2) / student_t(n - 1, confidence)
        effective = min(max(p * (1 - p) / variance * shrink**2, n), n * trials)
    return wilson_of_rate(p, effective, confidence)
