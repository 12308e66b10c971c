"""One way to say how sure a number is: independent parts of its variance, put together by Student's t; intervals of
rates, and Holm's correction of several tests.

The parts of a loss measured under an edit:

- *evaluation text*: windows follow each other and neighbours are alike, so that single windows are no independent
  units. Blocks of neighbouring windows are taken instead (`blocks.block_stderr`).
- *seeds*: of random rankings and of random controls (`seed_parts`).
- *calibration text*: the same selector on other text is another mask (`draw_part`), where it was measured.

`estimate` adds the variances; its degrees of freedom are Satterthwaite's (1946), so that few seeds or few draws widen
the interval as Student's t does for a single part."""

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple, TypeVar

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


CONFIDENCE = 0.95
Level = TypeVar("Level", bound=Hashable)
COLUMNS = ("stderr_blocks", "blocks")  # what tables say of the evaluation text's part


class Part(NamedTuple):
    """An independent part of a variance, and the degrees of freedom of its estimate (infinite: it is known)."""

    variance: float
    degrees: float


class Estimate(NamedTuple):
    """A number with its standard error, degrees of freedom and interval; None where an error is not known."""

    value: float
    stderr: float | None
    degrees: float | None
    low: float | None
    high: float | None
    looks: int = 1  # at how many sizes of the sample the question may have been asked

    @property
    def p_differs(self) -> float | None:
        """Two-sided p of the claim that the true value is not 0, times `looks` (Bonferroni); None without an error."""
        if self.stderr is None or self.degrees is None or not math.isfinite(self.value):
            return None
        if self.stderr == 0:
            return 0.0 if self.value else 1.0
        return min(1.0, self.looks * two_sided_p(self.value / self.stderr, self.degrees))


def estimate(value: float, parts: Iterable[Part | None], confidence: float = CONFIDENCE, looks: int = 1) -> Estimate:
    """value with stderr = sqrt(sum of variances) and value +- t(degrees) * stderr.

    degrees = (sum v)^2 / sum (v^2 / degrees of v), Satterthwaite (1946). None among the parts: one of them is not
    known (a single block, say), and then nothing is said of the error. `InputError` without any part.

    looks: of how many sizes of a growing sample, planned beforehand, this is one (`layer_matched.looks`): each has
    confidence 1 - (1 - confidence) / looks, so that all hold together, whatever tells when to stop."""
    given = list(parts)
    known = [part for part in given if part is not None]
    if not given:
        raise InputError("an estimate needs at least one part of its variance, got none")
    total = math.fsum(part.variance for part in known)
    if len(known) < len(given) or not (math.isfinite(value) and math.isfinite(total)):
        return Estimate(value, None, None, None, None, looks)
    if total == 0:
        return Estimate(value, 0.0, math.inf, value, value, looks)
    degrees = satterthwaite(known)
    stderr = math.sqrt(total)
    half = student_t(degrees, 1 - (1 - confidence) / looks) * stderr
    return Estimate(value, stderr, degrees, value - half, value + half, looks)


def satterthwaite(parts: Sequence[Part]) -> float:
    """Degrees of freedom of a sum of independent estimates of variance; infinite where all are known or zero."""
    squares = math.fsum(part.variance**2 / part.degrees for part in parts)
    return math.fsum(part.variance for part in parts) ** 2 / squares if squares else math.inf


def text_part(stderrs: Sequence[float | None], blocks: Sequence[int | None]) -> Part | None:
    """The evaluation text's part in a mean of numbers that share it: the mean of their squared errors.
    It does not shrink with their number, since they share the text (taken as wholly dependent: rather too wide).
    blocks: behind each error; None: windows that were taken as independent, whose degrees count as infinite."""
    known = [error for error in stderrs if error is not None and math.isfinite(error)]
    if not known or len(known) < len(stderrs):
        return None
    least = min(math.inf if count is None else count - 1 for count in blocks)
    return Part(statistics.fmean(error * error for error in known), least)


def mean_over_levels(pairs: Iterable[tuple[Level, float]]) -> dict[Level, float]:
    """Mean value of every level, in the order in which levels come up."""
    values: dict[Level, list[float]] = {}
    for level, value in pairs:
        values.setdefault(level, []).append(value)
    return {level: statistics.fmean(some) for level, some in values.items()}


def seed_parts(values: Sequence[float], *levels: Sequence[Hashable]) -> list[Part]:
    """What the draw of the seeds adds to the mean of `values`: the variance of the means by seed over their number.
    levels: per factor (the seeds of one side, of the other) the seed of each value. A factor of one seed adds
    nothing: it shows no spread."""
    parts = []
    for level in levels:
        means = list(mean_over_levels(zip(level, values, strict=True)).values())
        if len(means) > 1 and all(map(math.isfinite, means)):
            parts.append(Part(statistics.variance(means) / len(means), len(means) - 1))
    return parts


def draw_part(values: Sequence[float]) -> list[Part]:
    """The calibration text's part: the variance of the number between disjoint draws of it.
    Not divided by their number, since the result comes from one calibration text. Nothing of fewer than two draws."""
    finite = [value for value in values if math.isfinite(value)]
    return [Part(statistics.variance(finite), len(finite) - 1)] if len(finite) > 1 else []


LEVEL = 0.05  # of adjusted p
Question = TypeVar("Question", bound=Hashable)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p of every test, in the given order (Holm 1979), valid however the tests depend on each other.
    With the p in ascending order, adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)), j from 1."""
    if not all(0 <= p <= 1 for p in p_values):
        raise InputError(f"p values must be in [0, 1], got {list(p_values)}")
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def adjusted(p_values: Mapping[Question, float]) -> dict[Question, float]:
    """p by what was asked, adjusted by Holm over all of them."""
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


@dataclass(frozen=True)
class JudgeCounts:
    """A judge's verdicts against people's labels: refusals it saw and missed, answers it took for refusals and not.
    `InputError` unless there are labelled replies of both kinds: without them one of its errors is unknown."""

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    def __post_init__(self) -> None:
        if min(vars(self).values()) < 0 or not self.refusals or not self.answers:
            raise InputError(
                "a judge's errors need labelled refusals and labelled answers, got "
                + ", ".join(f"{name} {count}" for name, count in vars(self).items())
            )

    @property
    def refusals(self) -> int:
        """Replies that people call refusals."""
        return self.true_positives + self.false_negatives

    @property
    def answers(self) -> int:
        """Replies that people call answers."""
        return self.true_negatives + self.false_positives

    @property
    def sensitivity(self) -> float:
        return self.true_positives / self.refusals

    @property
    def specificity(self) -> float:
        return self.true_negatives / self.answers


def corrected_rate(judged: int, n: int, counts: JudgeCounts, confidence: float = 0.95) -> tuple[float, Interval] | None:
    """The share of true refusals behind `judged` of `n` verdicts, with its interval; both in [0, 1].

    Estimate (Rogan & Gladen 1978): (q + Sp - 1) / (Se + Sp - 1), q = judged / n, cut to [0, 1]. Interval (Lang &
    Reiczigel 2014, Preventive Veterinary Medicine 113, 13): with z the normal quantile, q', Se', Sp' after adding
    z^2 / 2 successes and z^2 / 2 failures to q, one of each to Se and Sp (n', m', k' their trials then), and
    P' = (q' + Sp' - 1) / (Se' + Sp' - 1),

        P' + 2 z^2 (P' Se'(1-Se')/m' - (1-P') Sp'(1-Sp')/k')
           +- z sqrt(q'(1-q')/n' + P'^2 Se'(1-Se')/m' + (1-P')^2 Sp'(1-Sp')/k') / (Se' + Sp' - 1), cut to [0, 1].

    It takes the judge to err on these replies as often as on the labelled ones, which is not known.
    None where the judge is no better than chance (Se + Sp <= 1). `InputError` unless 0 <= judged <= n and n > 0."""
    if n <= 0 or not 0 <= judged <= n:
        raise InputError(f"a rate needs 0 <= judged <= n and n > 0, got {judged} of {n}")
    youden = counts.sensitivity + counts.specificity - 1
    if youden <= 0:
        return None
    estimate = (judged / n + counts.specificity - 1) / youden
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    trials, refusals, answers = n + z * z, counts.refusals + 2, counts.answers + 2
    q, se, sp = (
        (judged + z * z / 2) / trials,
        (counts.true_positives + 1) / refusals,
        (counts.true_negatives + 1) / answers,
    )
    adjusted = (q + sp - 1) / (se + sp - 1)
    of_se, of_sp = se * (1 - se) / refusals, sp * (1 - sp) / answers
    centre = adjusted + 2 * z * z * (adjusted * of_se - (1 - adjusted) * of_sp)
    half = z * math.sqrt(q * (1 - q) / trials + adjusted**2 * of_se + (1 - adjusted) ** 2 * of_sp) / (se + sp - 1)
    return _share(estimate), Interval(_share(centre - half), _share(centre + half))


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
