"""Who is ahead under which protocol, by how much and how surely; what of it holds under all. Needs no torch.

A protocol is an intervention, a kind of unit, a metric, an order and a rate. Harm is the metric written so that more of
it is worse: NLL, KL to the unedited model, or the share of tokens whose most likely next token changed. Under LeRF the
selector with less harm is ahead, under MoRF the one with more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError
from engine.stats.blocks import Blocks, block_stderr
from engine.stats.uncertainty import LEVEL, Estimate, Part, adjusted, estimate, seed_parts

USUAL_UNITS = ("row", "neuron", "head")
UNIT_KINDS = (*USUAL_UNITS, "expert")  # which few models have
METRICS = ("nll", "kl", "top1")
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Harm:
    """Harm of one selector's edits under one protocol. sums [seeds, windows] over the tokens; tokens [windows]; blocks:
    of these windows, None: by their number (`block_stderr`)."""

    sums: Numbers
    tokens: tuple[int, ...]
    blocks: Blocks | None = None

    @property
    def per_token(self) -> float:
        return float(self.sums.sum() / (len(self.sums) * sum(self.tokens)))

    def __sub__(self, other: Harm) -> Harm:
        """The difference of the means over seeds, window by window, as the harm of one seed."""
        if self.tokens != other.tokens:
            raise InputError("a paired difference needs the same windows; measure both on one text")
        with np.errstate(invalid="ignore"):  # of a broken model: infinity less infinity
            apart = self.sums.mean(0) - other.sums.mean(0)
        return Harm(np.where(np.isfinite(apart), apart, np.nan)[None], self.tokens, self.blocks)


def text_part(harm: Harm) -> Part | None:
    """What the choice of the text adds to the variance of the mean over seeds (`block_stderr`). None for a single
    window, or where the harm is not finite."""
    windows = harm.sums.mean(0).tolist()
    if not math.isfinite(math.fsum(windows)):
        return None
    stderr, blocks = block_stderr(windows, harm.tokens, harm.blocks)
    return None if stderr is None else Part(stderr**2, blocks - 1)


def seed_part(harm: Harm) -> list[Part]:
    """What the draw of the seeds adds; nothing for one seed, which shows no spread, or where the harm is not finite."""
    means = [math.fsum(one) / sum(harm.tokens) for one in harm.sums.tolist()]
    return seed_parts(means, range(len(means)))


def difference(a: Harm, b: Harm) -> Estimate:
    """Harm of a minus harm of b, paired over blocks of windows; the seeds of a random ranking add their own variance.
    t = value / stderr with Satterthwaite's degrees of freedom. No error where one block is all, or the text's part is
    not known; equal in every window: p = 1."""
    apart = a - b
    return estimate(apart.per_token, [text_part(apart), *seed_part(a), *seed_part(b)])


class Compared(NamedTuple):
    """Two selectors under one protocol. p: adjusted by Holm over the pairs of this protocol; first: who is ahead."""

    a: str
    b: str
    sure: Estimate
    p: float | None
    first: str | None


def compare(harms: Mapping[str, Harm], order: str, *, destroyed: Collection[str] = ()) -> list[Compared]:
    """Every pair of selectors under one protocol, with Holm over its pairs: as a study with this protocol alone would
    decide. Where all selectors are equal, it names any of them first with probability `LEVEL` at most. Every pair that
    is not told apart is a tie, and so is one without an error. destroyed: selectors whose models are; a pair of these
    is not tested."""
    pairs = [(a, b, difference(harms[a], harms[b])) for a, b in itertools.combinations(harms, 2)]
    tested = {(a, b): sure.p_differs for a, b, sure in pairs if not {a, b} <= set(destroyed)}
    p_holm = adjusted({pair: p for pair, p in tested.items() if p is not None})
    lines = []
    for a, b, sure in pairs:
        p = p_holm.get((a, b))
        less = a if sure.value < 0 else b
        more = b if less == a else a
        decided = p is not None and p <= LEVEL
        lines.append(Compared(a, b, sure, p, (less if order == "lerf" else more) if decided else None))
    return lines


class Area(NamedTuple):
    """(area under MoRF - area under LeRF) / random's area, with a 95% interval; None where it is not known."""

    value: float | None
    low: float | None
    high: float | None


def integrated(rates: Sequence[float], harms: Sequence[Harm], unedited: Harm) -> Harm:
    """The trapezoid integral over the rates of the harm above the unedited model's, from rate 0, over the last rate.
    Window by window and seed by seed, so that it is a harm as well."""
    total = np.zeros_like(harms[0].sums)
    last_rate, last = 0.0, np.zeros_like(harms[0].sums)
    for rate, harm in sorted(zip(rates, harms, strict=True), key=lambda pair: pair[0]):
        here = harm.sums - unedited.sums
        total += (rate - last_rate) * (here + last) / 2
        last_rate, last = rate, here
    return Harm(total / last_rate, harms[0].tokens, harms[0].blocks)


def area(lerf: Harm, morf: Harm, chance: Harm, confidence: float = 0.95) -> Area:
    """How far MoRF's curve lies above LeRF's, in units of the harm that random removal does.

    R = (sum of morf - lerf) / (sum of chance), harms as `integrated` makes them: 0 for a ranking that knows nothing, 1
    where as much area lies between the curves as under random's, no bound above. The
    error is the ratio's over blocks of windows (linearised: residuals morf - lerf - R chance), with what the seeds of
    both add, and the interval Student's. None where random removal does no harm, or a harm is not finite."""
    gap, below = morf - lerf, float(chance.per_token)
    if not (math.isfinite(gap.per_token) and math.isfinite(below) and below > 0):
        return Area(None, None, None)
    ratio = gap.per_token / below
    residual = Harm(gap.sums - ratio * chance.sums.mean(0), gap.tokens, gap.blocks)
    text = text_part(residual)
    if text is None:
        return Area(ratio, None, None)
    own = seed_part(Harm(morf.sums - lerf.sums, lerf.tokens)) if morf.sums.shape == lerf.sums.shape else []
    random = [Part(ratio**2 * part.variance, part.degrees) for part in seed_part(chance)]
    parts = [Part(part.variance / below**2, part.degrees) for part in (text, *own, *random)]
    ratio_estimate = estimate(ratio, parts, confidence)
    return Area(ratio, ratio_estimate.low, ratio_estimate.high)
