"""How much of a selector's advantage over random removal its depths alone give, as a ratio with Fieller's interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from engine.stats.intervals import Interval, student_t
from engine.stats.uncertainty import CONFIDENCE, Part, satterthwaite


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
    set has no ends.
    """
    if not (math.isfinite(a) and math.isfinite(b)) or b == 0 or not parts:
        return None
    degrees = satterthwaite([part.along(a / b) for part in parts])
    square = student_t(degrees, confidence) ** 2
    v_aa, v_ab, v_bb = (math.fsum(part[place] for part in parts) for place in range(3))
    lead, middle, last = b * b - square * v_bb, a * b - square * v_ab, a * a - square * v_aa
    if not lead > 0:  # NaN: an error is not known
        return None
    root = math.sqrt(max(0.0, middle * middle - lead * last))
    return Interval((middle - root) / lead, (middle + root) / lead)
