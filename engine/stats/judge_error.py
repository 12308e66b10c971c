"""What a judge's measured errors make of a rate of refusals: Rogan and Gladen, with the errors' own uncertainty."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from engine.records.errors import InputError
from engine.stats.uncertainty import Interval


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
