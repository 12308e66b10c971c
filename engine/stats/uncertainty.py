"""One way to say how sure a number is: independent parts of its variance, put together by Student's t.

The parts of a loss measured under an edit:

- *evaluation text*: windows follow each other and neighbours are alike, so that single windows are no independent
  units. Blocks of neighbouring windows are taken instead (`blocks.block_stderr`).
- *seeds*: of random rankings and of random controls (`seed_parts`).
- *calibration text*: the same selector on other text is another mask (`draw_part`), where it was measured.

`estimate` adds the variances; its degrees of freedom are Satterthwaite's (1946), so that few seeds or few draws widen
the interval as Student's t does for a single part."""

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from engine.records.errors import InputError
from engine.stats.intervals import student_t, two_sided_p
from engine.stats.paired import mean_over_levels

CONFIDENCE = 0.95
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
    there = [value for value in values if math.isfinite(value)]
    return [Part(statistics.variance(there), len(there) - 1)] if len(there) > 1 else []
