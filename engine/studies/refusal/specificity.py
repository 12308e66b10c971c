"""The paper's controls: random masks of the size of an edit, layer-matched and global, and the gain over their mean.

They are not searched as the edit was: `engine.studies.refusal.draws` has draws that are."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.data.corpora import Pair
from engine.edits.controls import global_random, layer_matched
from engine.edits.edit import Edit
from engine.measures.nll import perplexity
from engine.records.errors import InputError
from engine.run.runner import Results
from engine.stats.intervals import Interval, student_t, wilson_of_rate
from engine.studies.refusal.inputs import Rate, Rates, RefusalInputs
from engine.studies.refusal.operating_point import OperatingPoint

LAYER_MATCHED, GLOBAL = "layer_matched", "global_random"


@dataclass(frozen=True)
class Control:
    """One random mask of the size of a real one, measured."""

    kind: str
    seed: int
    rates: Rates
    nll: float


def control_edits(run: RefusalInputs, edit: Edit) -> Iterator[tuple[str, int, Edit]]:
    """Random masks with the count of `edit` in every layer, and in all: one of each kind per seed of the plan.
    The paper, section 5.3, has the layer-matched ones; rows of the real mask may be drawn again."""
    rows = run.loaded.rows
    for seed in run.plan.control_seeds:
        yield LAYER_MATCHED, seed, run.edit(layer_matched(edit.units, rows, seed))
        yield GLOBAL, seed, run.edit(global_random(edit.units, rows.n_rows, seed))


def measured_controls(run: RefusalInputs, results: Results, edit: Edit, pairs: Sequence[Pair]) -> list[Control]:
    return [
        Control(kind, seed, run.rates(results, drawn, pairs), results[run.nll(drawn)].nats_per_token)
        for kind, seed, drawn in control_edits(run, edit)
    ]


def control_lines(model: str, point: OperatingPoint, controls: Sequence[Control]) -> Iterator[tuple[object, ...]]:
    place = (model, point.selector, point.domain, point.lam, point.k, point.rows_removed)
    for one in controls:
        malign, benign = one.rates.malign, one.rates.benign
        numbers = (malign.mean, malign.n, benign.mean, benign.n, one.nll, perplexity(one.nll))
        yield (*place, one.kind, one.seed, *numbers, malign.unfinished, benign.unfinished)


def gain(real: Rate, controls: Sequence[Rate]) -> tuple[float, Interval]:
    """Refusal under the real mask minus the mean over its controls, with a 95% interval.

    Square-and-add of intervals (Newcombe 1998, method 10; MOVER), which does not collapse where a rate is 0 or 1.
    Two sources of chance: the prompts, by Wilson's intervals of the real rate and of the mean control rate, each
    on n prompts (all controls share them, so they count once); and which control masks were drawn, by Student's t
    interval of their mean, half-width h = t * sd / sqrt(controls):

        low  = gain - sqrt((p - p_low)^2 + (c_high - c)^2 + h^2)
        high = gain + sqrt((p_high - p)^2 + (c - c_low)^2 + h^2), both cut to [-1, 1]

    A single control shows no spread (h = 0). Rates on one set of prompts agree more than independent ones, so the
    interval is rather too wide (**choice**; the paper prints none). It takes no account of the search behind the real
    mask: selectors of pure noise have it above 0 in 12 to 46% of simulated trials, the more cells in the grid
    (`precomputed.null_simulation`), so that it is no evidence of specificity."""
    if not controls or any(one.n != real.n for one in controls):
        raise InputError(f"a gain needs controls on the same {real.n} prompts, got {[one.n for one in controls]}")
    rates = [one.mean for one in controls]
    mean = sum(rates) / len(rates)
    difference = real.mean - mean
    spread = wilson_of_rate(mean, real.n)
    half = 0.0
    if len(rates) > 1:
        deviation = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1))
        half = student_t(len(rates) - 1) * deviation / math.sqrt(len(rates))
    own = real.interval
    low = difference - math.hypot(real.mean - own.low, spread.high - mean, half)
    high = difference + math.hypot(own.high - real.mean, mean - spread.low, half)
    return difference, Interval(max(-1.0, low), min(1.0, high))
