"""How often is a selector of pure noise called specific? The engine's own tests on simulated masks.

    python -m precomputed.null_simulation

writes `null_simulation.json` beside this file, which Methods shows. Seeded; a few seconds.

What is simulated, per trial: one set of calibration and one of held-out prompts, and selectors that know nothing.
A mask shifts the margin of every prompt by an effect of its own, normal with standard deviation `SPREAD` (the prompts'
margins are logistic), and a prompt is refused where its margin is above 0. The effects of one mask on calibration
and on held-out prompts correlate at `CORRELATION`, those of two masks of one selector's grid at `WITHIN`. Each
selector takes the mask with the largest calibration refusal whose benign refusal is within the limit. Its three
random controls are masks that nobody chose, as the paper has them.

`until` and `pooled` are of audits: a selector that knows its depths and nothing about rows is one more layer-matched
mask. Masks' losses are normal or have the skewness `SKEW`, a gamma distribution's: the largest of those of 160 such
masks of the shipped model (magnitude, lrp and ig in both orders at 2, 10 or 30% of the rows: .19 to .61).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.measures.nll import NegativeLogLikelihood
from engine.records.files import write_atomic
from engine.stats.layer_matched import against_controls, looks, p_value, prediction_interval, sure_enough
from engine.stats.uncertainty import LEVEL as TOLD, holm, two_sided_p, wilson
from engine.studies.refusal.points import gain
from engine.studies.refusal.refusal_inputs import Rate
from precomputed import null_simulation_file

FILE = null_simulation_file()
GRIDS = (1, 4, 12)  # cells
CORRELATION, WITHIN, SPREAD = 0.98, 0.2, 1.2
MALIGN, BENIGN = -2.5, -8.0  # mean margins of risk and base prompts: 8% and 0.03% are refused unedited
CALIBRATION, HELDOUT = 64, 100  # prompts of a kind
DRAWS, CONTROLS, TRIALS = 39, 3, 2000
LEVEL, LIMIT = 0.025, 0.10
SEED = 11
MASKS, MOST, WINDOWS, TEXT, SKEW = 10, 80, 16, 0.5, 0.6  # TEXT: a window's own noise, in standard deviations of masks
SELECTORS, ALIKE = 8, 0.1  # p of the test of equal variances above which they would be pooled

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def effects(rng: np.random.Generator, selectors: int, cells: int) -> tuple[Floats, Floats]:
    """Shifts of the margin on calibration and on held-out prompts. [selectors, cells] each"""
    own, shared = rng.standard_normal((selectors, cells)), rng.standard_normal((selectors, 1))
    calibration = np.sqrt(WITHIN) * shared + np.sqrt(1 - WITHIN) * own
    rest = rng.standard_normal((selectors, cells))
    heldout = CORRELATION * calibration + np.sqrt(1 - CORRELATION**2) * rest
    return SPREAD * calibration, SPREAD * heldout


def refused(margins: Floats, shift: Floats) -> Counts:
    """How many of the prompts are refused under every shift. margins [n], shift [...], returns [...]"""
    return margins.size - np.searchsorted(np.sort(margins), -shift, side="right")


def chosen(malign: Counts, benign: Counts) -> Counts:
    """The cell of every selector: most refused risk prompts with benign refusal within the limit, the first of equals;
    -1 without one. malign, benign [selectors, cells] of calibration prompts, returns [selectors]
    """
    usable = np.where(benign <= LIMIT * CALIBRATION, malign, -1)
    return np.where(usable.max(axis=1) >= 0, usable.argmax(axis=1), -1)


def one_trial(rng: np.random.Generator, cells: int, draws: int) -> tuple[list[int], list[int]]:
    """Held-out refusals of the selectors, the one under test first, and of its random controls, of HELDOUT prompts."""
    calibration, heldout = effects(rng, 1 + draws, cells)
    known = (refused(rng.logistic(mean, 1, CALIBRATION), calibration) for mean in (MALIGN, BENIGN))
    place = chosen(*known)
    margins = rng.logistic(MALIGN, 1, HELDOUT)
    shift = np.where(place >= 0, np.take_along_axis(heldout, np.maximum(place, 0)[:, None], 1)[:, 0], 0.0)
    _, unchosen = effects(rng, CONTROLS, 1)
    return refused(margins, shift).tolist(), refused(margins, unchosen[:, 0]).tolist()


def simulate(cells: int, *, trials: int = TRIALS, draws: int = DRAWS, level: float = LEVEL) -> dict[str, Any]:
    """Shares of trials in which noise is called specific, and in which the prediction interval holds the edit's rate.

    p: the engine's p <= level; interval: its gain over random controls has a 95% interval above 0; covered: the rate
    lies in the 95% prediction interval of the draws. Each with Wilson's 95% interval over the trials.
    """
    rng = np.random.default_rng([SEED, cells])
    counts = {"p": 0, "interval": 0, "covered": 0}
    for _ in range(trials):
        found, controls = one_trial(rng, cells, draws)
        real, *others = (count / HELDOUT for count in found)
        counts["p"] += p_value(real, others) <= level
        counts["interval"] += gain(_rate(found[0]), [_rate(count) for count in controls])[1].low > 0
        low, high = prediction_interval(others)
        counts["covered"] += low <= real <= high
    shares = {name: [count / trials, *wilson(count, trials)] for name, count in counts.items()}
    return {"cells": cells, "trials": trials, "draws": draws, "level": level, **shares}


def masks(rng: np.random.Generator, skew: float, *shape: int) -> Floats:
    """Losses of masks, with mean 0, standard deviation 1 and this skewness."""
    if not skew:
        return rng.standard_normal(shape)
    gamma = 4 / skew**2
    return (rng.gamma(gamma, size=shape) - gamma) / np.sqrt(gamma)


def until(skew: float, *, trials: int = TRIALS) -> dict[str, Any]:
    """Shares of trials in which noise is told from its controls when masks are drawn until it is: by the p that allows
    for the looks, by one that does not, and at the first look alone.
    """
    rng, sizes = np.random.default_rng([SEED, round(100 * skew)]), looks(MASKS, MOST)
    counts = {"told": 0, "unadjusted": 0, "once": 0}
    for _ in range(trials):
        nats = masks(rng, skew, MOST + 1, 1) + TEXT * rng.standard_normal((MOST + 1, WINDOWS))
        own, *controls = (NegativeLogLikelihood(tuple(one), (1,) * WINDOWS) for one in nats.tolist())
        found = [
            against_controls([own], [controls[:size]], controls[:2], "lerf", len(sizes)).difference for size in sizes
        ]
        plain = [one._replace(looks=1).p_differs or 0.0 for one in found]
        counts["told"] += any(sure_enough(one, 0.0, 1) for one in found)
        counts["unadjusted"] += min(plain) <= TOLD
        counts["once"] += plain[0] <= TOLD
    shares = {name: [count / trials, *wilson(count, trials)] for name, count in counts.items()}
    return {"skew": skew, "trials": trials, "looks": list(sizes), "level": TOLD, **shares}


def pooled(ratio: float, skew: float = 0.0, *, trials: int = TRIALS) -> dict[str, Any]:
    """Shares of trials in which any of `SELECTORS` selectors of noise is told after Holm, by the variance of its own
    masks and by one pooled where Brown and Forsythe's test (1974) does not tell them apart. ratio: standard deviation
    of the masks of one selector, in those of the others.
    """
    from scipy.stats import levene

    rng, degrees = np.random.default_rng([SEED, round(100 * ratio)]), MASKS - 1
    sizes, counts = np.array([ratio] + [1.0] * (SELECTORS - 1)), {"own": 0, "pooled": 0}
    for _ in range(trials):
        losses = masks(rng, skew, SELECTORS, MASKS + 1) * sizes[:, None]
        variances = losses[:, 1:].var(axis=1, ddof=1)
        differences = (losses[:, 0] - losses[:, 1:].mean(axis=1)) / np.sqrt(1 + 1 / MASKS)
        by_own = _any_told(differences / np.sqrt(variances), degrees)
        alike = levene(*losses[:, 1:]).pvalue > ALIKE
        by_all = _any_told(differences / np.sqrt(variances.mean()), SELECTORS * degrees)
        counts["own"] += by_own
        counts["pooled"] += by_all if alike else by_own
    shares = {name: [count / trials, *wilson(count, trials)] for name, count in counts.items()}
    return {"ratio": ratio, "skew": skew, "trials": trials, "level": TOLD, **shares}


def _any_told(statistics: Floats, degrees: int) -> bool:
    return min(holm([two_sided_p(one, degrees) for one in statistics.tolist()])) <= TOLD


def _rate(count: int) -> Rate:
    return Rate((True,) * count + (False,) * (HELDOUT - count))


def main() -> None:
    """Write the table."""
    about = {
        "correlation": CORRELATION, "within": WITHIN, "spread": SPREAD, "calibration": CALIBRATION, "heldout": HELDOUT,
        "controls": CONTROLS, "seed": SEED,
    }  # fmt: skip
    found = {
        **about, "grids": [simulate(cells) for cells in GRIDS], "until": [until(skew) for skew in (0.0, SKEW)],
        "pooled": [pooled(1.0), pooled(2.0), pooled(1.0, SKEW)],
    }  # fmt: skip
    write_atomic(FILE, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
