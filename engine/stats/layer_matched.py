"""A result beside random ones that were treated alike: a selector beside its own layer-matched controls and random
masks, a group of rows beside random groups, a value among draws, two texts by draws of both."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError
from engine.stats.blocks import Blocks, Windowed, block_stderr, blocks_for
from engine.stats.uncertainty import (
    CONFIDENCE,
    LEVEL,
    Estimate,
    Interval,
    Part,
    estimate,
    holm,
    satterthwaite,
    seed_parts,
    student_t,
    two_sided_p,
)


class JointPart(NamedTuple):
    """An independent part of the covariance of two estimates a and b, and the degrees of freedom behind it."""

    var_a: float
    cov: float
    var_b: float
    degrees: float

    def along(self, ratio: float) -> Part:
        """Its part in the variance of a - ratio * b."""
        return Part(max(0.0, self.var_a - 2 * ratio * self.cov + ratio * ratio * self.var_b), self.degrees)


def fieller(a: float, b: float, parts: Sequence[JointPart], confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of the ratio a / b of two estimates that depend on each other (Fieller 1954).

    All ratios q for which a - q b is within t standard errors of 0: the roots of

        (b^2 - t^2 V_bb) q^2 - 2 (a b - t^2 V_ab) q + (a^2 - t^2 V_aa) = 0

    with Student's t at Satterthwaite's degrees of a - (a / b) b. None where b is not clearly different from 0: then the
    set has no ends."""
    if not (math.isfinite(a) and math.isfinite(b)) or b == 0 or not parts:
        return None
    square = student_t(satterthwaite([part.along(a / b) for part in parts]), confidence) ** 2
    v_aa, v_ab, v_bb = (math.fsum(part[place] for part in parts) for place in range(3))
    lead, middle, last = b * b - square * v_bb, a * b - square * v_ab, a * a - square * v_aa
    if not lead > 0:  # NaN: an error is not known
        return None
    root = math.sqrt(max(0.0, middle * middle - lead * last))
    return Interval((middle - root) / lead, (middle + root) / lead)


Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Against:
    """One selector, order and rate. difference: its NLL minus its controls' mean; advantages: how much better than
    random masks it and its controls are, both above 0 where better; stderr_blocks: of difference, the text's part.

    depth_share = control_advantage / advantage, None with its interval where the advantage is not clearly above 0."""

    difference: Estimate
    stderr_blocks: float | None
    blocks: int
    advantage: Estimate
    control_advantage: float
    depth_share: float | None
    share_interval: Interval | None


def against_controls(
    own: Sequence[Windowed],
    controls: Sequence[Sequence[Windowed]],
    random: Sequence[Windowed],
    order: str,
    looks: int = 1,
) -> Against:
    """own: the selector's masks, one per ranking; controls: per ranking the masks matched to it, one per seed, the
    same seeds for all; random: random masks. All on the same windows.

    With L, C, R the mean NLL of the three and s = 1 under LeRF, -1 under MoRF:

        difference L - C, advantage s (R - L), control advantage s (R - C), share (R - C) / (R - L)

    Independent parts of their covariance: contiguous blocks of the mean NLL per window; the seeds of R, of C and of
    the rankings. A selector that knows its depths and nothing about rows is one control more: so that this is what
    chance gives, the controls' part in the difference is that of one further draw, s^2 (1 + 1 / n) with s^2 their
    variance over n seeds (the prediction interval's), not that of their mean alone. The calibration text's part is not
    among them. looks: at how many numbers of seeds the difference may be tested (`looks`).

    **Choice:** the controls' variance is the selector's own, not one pooled over selectors where a test of equal
    variances lets it. Of 2,000 simulated families of 8 selectors of noise the first is told by Holm at .05 in .049
    (.070 with the skewness of real masks); the second in .093 where the masks of one selector vary twice as much as
    the others' (`precomputed.null_simulation`)."""
    tokens = np.array(own[0].window_tokens, dtype=np.float64)
    of_own, of_random = _nats(own), _nats(random)
    of_controls = np.stack([_nats(some) for some in controls])  # [rankings, seeds, windows]
    sign, total = 1.0 if order == "lerf" else -1.0, float(tokens.sum())
    each = (of_own.sum(1) / total, of_controls.sum(2) / total, of_random.sum(1) / total)
    l_mean, c_mean, r_mean = (float(values.mean()) for values in each)
    windows = (of_own.mean(0), of_controls.mean((0, 1)), of_random.mean(0))  # nats per window of L, C, R

    used, sizes = own[0].blocks, tokens.tolist()

    spreads = (each[0] - each[1].mean(1), each[1].mean(0), each[2], each[0])  # over the seeds
    ranking, control, chance, own_spread = (seed_parts(some.tolist(), range(some.size)) for some in spreads)
    further = [Part(part.variance * (of_controls.shape[1] + 1), part.degrees) for part in control]

    def of_text(nats: Numbers) -> tuple[Part | None, int]:
        stderr, number = block_stderr(nats.tolist(), sizes, used) if np.isfinite(nats).all() else (None, 1)
        return None if stderr is None else Part(stderr**2, number - 1), number

    of_difference, blocks = of_text(windows[0] - windows[1])
    by_depth, by_rows = windows[2] - windows[1], windows[2] - windows[0]
    advantage = estimate(sign * (r_mean - l_mean), [of_text(by_rows)[0], *chance, *own_spread])
    joint = [
        *(JointPart(part.variance, part.variance, part.variance, part.degrees) for part in chance),
        *(JointPart(part.variance, 0.0, 0.0, part.degrees) for part in control),
        *(JointPart(0.0, 0.0, part.variance, part.degrees) for part in own_spread),
    ]
    clear = advantage.low is not None and advantage.low > 0
    interval = None
    if clear:
        joint.append(
            _text_covariance(by_depth, by_rows, tokens, blocks_for(used, sizes, by_depth.tolist(), by_rows.tolist()))
        )
        interval = fieller(r_mean - c_mean, r_mean - l_mean, joint)
    return Against(
        difference=estimate(l_mean - c_mean, [of_difference, *further, *ranking], looks=looks),
        stderr_blocks=None if of_difference is None else math.sqrt(of_difference.variance), blocks=blocks,
        advantage=advantage, control_advantage=sign * (r_mean - c_mean),
        depth_share=None if interval is None else (r_mean - c_mean) / (r_mean - l_mean), share_interval=interval,
    )  # fmt: skip


def _nats(results: Sequence[Windowed]) -> Numbers:
    return np.array([one.window_nats for one in results], dtype=np.float64)


def _text_covariance(a: Numbers, b: Numbers, tokens: Numbers, blocks: Blocks) -> JointPart:
    """Covariance of two ratios nats / tokens over blocks of windows: `block_stderr`'s, for both at once."""
    sizes = np.array(blocks.sums(tokens.tolist()))
    sums = np.array([blocks.sums(a.tolist()), blocks.sums(b.tolist())])
    residuals, n = sums - sums.sum(1, keepdims=True) / sizes.sum() * sizes, len(sizes)
    covariance = residuals @ residuals.T * (n / (n - 1)) / sizes.sum() ** 2 * blocks.widening
    return JointPart(float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1]), n - 1)


def looks(first: int, most: int) -> tuple[int, ...]:
    """How many draws there are at every look: first, twice as many, and so on, up to `most`.

    A look's test has the level divided by the number of looks, and so no more than the level of all together is
    exceeded at any of them, whatever tells when to stop: Bonferroni's inequality over a schedule that was fixed
    beforehand (alpha spending in equal shares; Lan and DeMets 1983). Each look is a t test, exact for normal draws.
    Noise that is drawn until it is told, at 10, 20, 40 and 80 masks, is told at .05 in .028 of 2,000 simulated trials,
    .031 with the skewness of real masks; without the allowance in .08 (`precomputed.null_simulation`)."""
    sizes = [first]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return tuple(sizes)


def sure_enough(difference: Estimate, width: float, tests: int, level: float = LEVEL) -> bool:
    """Is the interval no wider than `width`, or the difference told among `tests` that may be told? Then one stops. An
    error that is not known would not be known of more draws either."""
    if difference.low is None or difference.high is None:
        return True
    p = difference.p_differs
    return difference.high - difference.low <= width or (p is not None and p * tests <= level)


FLOOR = 0.01  # of the limit: less harm than this counts as this in logarithms


class Candidate(NamedTuple):
    """A group above the limit. harm: NLL with it removed alone minus the unmasked model's; draws: of random groups."""

    harm: float
    draws: tuple[float, ...]


def excess_p(harm: float, draws: Sequence[float], limit: float) -> float:
    """One-sided p that a further random group does as much harm: the larger of two prediction tests.

    t = (h - mean) / (s sqrt(1 + 1/n)) with n - 1 degrees, exact for normal values: once with the harm in nats, once
    with its logarithm, where what is below `FLOOR` of the limit counts as that. Harms of random groups are skewed to
    the right more often than not; normal, gamma, exponential and log-normal ones pass Holm over 100 groups at .05 in
    .05 of cases or fewer (simulated). That a single row carries most of the harm, which few random groups have, is not
    covered by either. Draws that do not differ, and losses that are not finite, have the exact p of the rank, which is
    at least 1 / (n + 1).
    Errors: InputError for fewer than two draws."""
    n = len(draws)
    if n < 2:
        raise InputError(f"a group is compared with at least 2 random groups of its size, got {n}")
    real, *others = (one if math.isfinite(one) else math.inf for one in (harm, *draws))  # NaN: the model is broken
    if math.inf in (real, *others) or min(others) == max(others):
        return (1 + sum(one >= real for one in others)) / (n + 1)
    p = _prediction_p(harm, draws)
    if limit <= 0:  # a limit below the unmasked model's loss: no logarithm of the harm
        return p
    least = FLOOR * limit
    logs = [math.log(max(one, least)) for one in draws]
    return max(p, _prediction_p(math.log(max(harm, least)), logs))


def _prediction_p(value: float, draws: Sequence[float]) -> float:
    """One-sided. Logarithms that are all at the floor say nothing against a value above them: 0."""
    spread = statistics.stdev(draws)
    above = value - statistics.fmean(draws)
    if not spread:
        return 0.0 if above > 0 else 1.0
    half = two_sided_p(above / (spread * math.sqrt(1 + 1 / len(draws))), len(draws) - 1) / 2
    return half if above > 0 else 1 - half


def judge_groups(candidates: Sequence[Candidate | None], limit: float) -> list[tuple[float | None, float | None]]:
    """p and Holm's p of every group; None for a group within the limit, which is not compared with random ones.
    Holm over all groups: those within the limit count as p = 1, since which groups are compared is seen in the same
    numbers."""
    p_values = [None if one is None else excess_p(one.harm, one.draws, limit) for one in candidates]
    adjusted = holm([1.0 if p is None else p for p in p_values])
    return [(None, None) if p is None else (p, whole) for p, whole in zip(p_values, adjusted, strict=True)]


def rank_among(real: float, draws: Sequence[float]) -> int:
    """Place of the real value among itself and the draws, 1 = largest: 1 + #{draws >= real}. Ties count against it.
    A draw is "at least as large" exactly, so both have to be shares of one number of prompts."""
    if not draws or not all(math.isfinite(value) for value in (real, *draws)):
        raise InputError(f"a rank needs at least one draw and finite values, got {real} among {list(draws)}")
    return 1 + sum(draw >= real for draw in draws)


def p_value(real: float, draws: Sequence[float]) -> float:
    """p = rank / (draws + 1), one-sided: the chance of so good a rank if the real value is one draw more.

    The permutation test on a random sample of permutations, exact at every number of draws (Phipson & Smyth 2010,
    arXiv:1603.05766): where the real value and the draws are exchangeable, P(p <= a) <= a for every a. It cannot be
    below 1 / (draws + 1)."""
    return rank_among(real, draws) / (len(draws) + 1)


def prediction_interval(draws: Sequence[float], confidence: float = 0.95) -> Interval:
    """Where one further draw's share lies: mean +- t(n - 1) * s * sqrt(1 + 1/n), cut to [0, 1].
    Exact for normal values; shares of refused prompts are not normal, so its coverage was simulated
    (`precomputed.null_simulation`). `InputError` for fewer than two draws, which show no spread."""
    n = len(draws)
    if n < 2 or not all(0 <= value <= 1 for value in draws):
        raise InputError(f"a prediction interval needs at least two draws in [0, 1], got {list(draws)}")
    mean = statistics.fmean(draws)
    half = student_t(n - 1, confidence) * statistics.stdev(draws) * math.sqrt(1 + 1 / n)
    return Interval(max(0.0, mean - half), min(1.0, mean + half))


class Overlaps(NamedTuple):
    """Mean overlaps of `draws` disjoint draws of each of two texts, and whether the texts can be told apart.
    within_a, within_b: of two draws of one text; between: of one draw of each. drop = mean of both within - between.
    p: for all questions asked of the same draws together (`compare_draws`)."""

    within_a: float
    within_b: float
    between: float
    drop: float
    p: float


def compare_draws(overlaps: npt.NDArray[np.float64]) -> list[Overlaps]:
    """One answer per question (a selector at a rate) that was asked of the same draws.

    If it does not matter which text a draw is from, its label is exchangeable, so the observed drop is one among those
    of all ways to part the 2k draws into two halves of k: an exact permutation test, one-sided. Each question's drops
    are divided by their standard deviation over the partitions, and p is the share of partitions whose largest quotient
    over all questions is at least the question's own (Westfall and Young 1993, single step): whatever the questions
    have to do with each other, at most a share a of all such tables has any p <= a if no text matters. p is at least
    1 over the number of partitions, 35 for k = 4.

    overlaps [questions, 2k, 2k], symmetric, the first k draws of one text, the others of the second; the diagonal is
    not read. Errors: InputError for fewer than two draws of a text, and for overlaps that are not finite."""
    total = overlaps.shape[-1]
    k = total // 2
    if overlaps.ndim != 3 or k < 2 or total % 2 or not np.isfinite(overlaps[:, ~np.eye(total, dtype=bool)]).all():
        raise InputError(
            "texts are compared by at least 2 draws of each and finite overlaps [questions, 2k, 2k], got shape "
            f"{list(overlaps.shape)}"
        )
    # The first draw is always in the first half, so that no partition comes twice; the real one comes first.
    halves = [(0, *rest) for rest in combinations(range(1, total), k - 1)]
    parts = [_parts(overlaps, np.isin(np.arange(total), half)) for half in halves]
    drops = np.stack([(first + second) / 2 - across for first, second, across in parts])  # [partitions, questions]
    spread = drops.std(axis=0)
    scaled = np.divide(drops, spread, out=np.zeros_like(drops), where=spread > 1e-12)
    largest = scaled.max(axis=1)
    lines = []
    for question, (first, second, across) in enumerate(zip(*parts[0], strict=True)):
        p = float((largest >= scaled[0, question] - 1e-9).mean()) if spread[question] > 1e-12 else 1.0
        lines.append(Overlaps(float(first), float(second), float(across), float(drops[0, question]), p))
    return lines


def _parts(overlaps: npt.NDArray[np.float64], first: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.float64], ...]:
    """Mean overlaps within the first half, within the second, between them; each [questions]."""
    others = ~np.eye(first.size, dtype=bool)
    within = (np.outer(one, one) & others for one in (first, ~first))
    return (*(overlaps[:, pairs].mean(axis=1) for pairs in within), overlaps[:, np.outer(first, ~first)].mean(axis=1))
