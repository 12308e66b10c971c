"""How often is a selector of pure noise called specific? The engine's own tests on simulated masks.

    python -m precomputed.null_simulation

writes `null_simulation.json` beside this file, which the page Methods shows. Seeded; a few seconds.

What is simulated, per trial: one set of calibration and one of held-out prompts, and selectors that know nothing.
A mask shifts the margin of every prompt by an effect of its own, normal with standard deviation `SPREAD` (the prompts'
margins are logistic), and a prompt is refused where its margin is above 0. The effects of one mask on calibration
and on held-out prompts correlate at `CORRELATION`, those of two masks of one selector's grid at `WITHIN`. Each
selector takes the mask with the largest calibration refusal whose benign refusal is within the limit. Its three
random controls are masks that nobody chose, as the paper has them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.records.files import write_atomic
from engine.stats.intervals import wilson
from engine.stats.permutation import p_value, prediction_interval
from engine.studies.refusal.inputs import Rate
from engine.studies.refusal.specificity import gain
from precomputed import null_simulation_file

FILE = null_simulation_file()
GRIDS = (1, 4, 12)  # cells
CORRELATION, WITHIN, SPREAD = 0.98, 0.2, 1.2
MALIGN, BENIGN = -2.5, -8.0  # mean margins of risk and base prompts: 8% and 0.03% are refused unedited
CALIBRATION, HELDOUT = 64, 100  # prompts of a kind
DRAWS, CONTROLS, TRIALS = 39, 3, 2000
LEVEL, LIMIT = 0.025, 0.10
SEED = 11

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


def _rate(count: int) -> Rate:
    return Rate((True,) * count + (False,) * (HELDOUT - count))


def main() -> None:
    """Write the table."""
    about = {
        "correlation": CORRELATION, "within": WITHIN, "spread": SPREAD, "calibration": CALIBRATION, "heldout": HELDOUT,
        "controls": CONTROLS, "seed": SEED,
    }  # fmt: skip
    found = {**about, "grids": [simulate(cells) for cells in GRIDS]}
    write_atomic(FILE, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
