"""Specificity: do random masks of the same size do the same? Layer-matched and global controls, and the gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from engine.corpora import Pair
from engine.errors import InputError
from engine.evaluation.perplexity import perplexity
from engine.evaluation.rates import Interval, student_t, wilson_of_rate
from engine.masks import Mask, checked_mask, layer_matched
from engine.refusal.operating_point import OperatingPoint
from engine.refusal.run import Rate, Rates, RefusalRun

LAYER_MATCHED, GLOBAL = "layer_matched", "global_random"
SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "domain": pl.String,
    "lambda": pl.Float64,
    "k": pl.Float64,
    "rows_removed": pl.Int64,
    "control": pl.String,
    "seed": pl.Int64,
    "malign": pl.Float64,
    "malign_n": pl.Int64,
    "benign": pl.Float64,
    "benign_n": pl.Int64,
    "nll": pl.Float64,
    "perplexity": pl.Float64,
}


@dataclass(frozen=True)
class Control:
    """One random mask of the size of a real one."""

    kind: str
    seed: int
    rates: Rates
    nll: float


def global_random(mask: Mask, n_rows: int, seed: int) -> Mask:
    """As many rows as `mask`, uniformly random over the whole model; ascending int64."""
    size = checked_mask(mask, n_rows).size
    return np.sort(np.random.default_rng(seed).choice(n_rows, size=size, replace=False)).astype(np.int64)


def measure_controls(run: RefusalRun, mask: Mask, pairs: Sequence[Pair]) -> list[Control]:
    """Refusal and NLL under random masks with the count of `mask` in every layer, and in all, one per seed of the plan.

    The paper, section 5.3, has the layer-matched ones; rows of the real mask may be drawn again.
    """
    rows = run.loaded.rows
    controls = []
    for seed in run.plan.control_seeds:
        masks = {
            LAYER_MATCHED: layer_matched(mask, rows, seed),
            GLOBAL: global_random(mask, rows.n_rows, seed),
        }
        for kind, drawn in masks.items():
            controls.append(Control(kind, seed, run.rates(drawn, pairs), run.nll(drawn).nats_per_token))
    return controls


def control_table(run: RefusalRun, point: OperatingPoint, controls: Sequence[Control]) -> pl.DataFrame:
    """`refusal_controls`: one row per control mask, see `SCHEMA`."""
    place = (run.loaded.id, point.selector, point.domain, point.lam, point.k, point.rows_removed)
    rows = [
        (
            *place,
            one.kind,
            one.seed,
            one.rates.malign.mean,
            one.rates.malign.n,
            one.rates.benign.mean,
            one.rates.benign.n,
            one.nll,
            perplexity(one.nll),
        )
        for one in controls
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def gain(real: Rate, controls: Sequence[Rate]) -> tuple[float, Interval]:
    """Refusal under the real mask minus the mean over its controls, with a 95% interval.

    Square-and-add of intervals (Newcombe 1998, method 10; MOVER), which does not collapse where a rate is 0 or 1.
    Two sources of chance: the prompts, by Wilson's intervals of the real rate and of the mean control rate, each
    on n prompts (all controls share them, so they count once); and which control masks were drawn, by Student's t
    interval of their mean, half-width h = t * sd / sqrt(controls):

        low  = gain - sqrt((p - p_low)^2 + (c_high - c)^2 + h^2)
        high = gain + sqrt((p_high - p)^2 + (c - c_low)^2 + h^2), both cut to [-1, 1]

    A single control shows no spread (h = 0). Rates on one set of prompts agree more than independent ones, so the
    interval is rather too wide (**choice**; the paper prints none).
    """
    if not controls or any(one.n != real.n for one in controls):
        raise InputError(
            f"a gain needs controls on the same {real.n} prompts, got {[one.n for one in controls]}"
        )
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
