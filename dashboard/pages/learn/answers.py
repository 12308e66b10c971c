"""The lessons in words, and which answer of each the measured numbers settle.

No answer is marked right by hand: each `settle_*` reads it off the numbers that the step's figure shows."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.charts import formats, palette
from engine.records.errors import InputError
from engine.stats.limits import Thresholds

QUESTION_RATE = 0.3
ORDER_RATE = 0.1
STABLE = Thresholds().spearman  # from which a ranking counts as stable here: the limit of the verdicts
MUCH_SMALLER = 0.5  # of the largest log gap
OFTEN, SELDOM = 0.5, 0.2  # refused shares
UNEVEN = 0.15  # refused share by which the strongest control lies above their mean


@dataclass(frozen=True)
class Lesson:
    """One step. answers: id -> text. id: part of links, never renamed."""

    id: str
    title: str
    text: str
    question: str
    answers: dict[str, str]


_WORDS = tomllib.loads(Path(__file__).with_name("lessons.toml").read_text("utf-8"))
LESSONS = tuple(Lesson(**one) for one in _WORDS["lesson"])


@dataclass(frozen=True)
class Settled:
    """The answer that the figure supports (empty: none of them), and why, with its numbers."""

    answer: str
    why: str


def outputs(weights: npt.NDArray[np.float32], row: int) -> tuple[npt.NDArray[np.float64], ...]:
    """Outputs of a matrix for a made-up input (fixed normal numbers), as it is and with one row zeroed. Both [rows]"""
    given = np.random.default_rng(0).standard_normal(weights.shape[1])
    before = weights.astype(np.float64) @ given
    edited = weights.astype(np.float64)
    edited[row] = 0
    return before, edited @ given


def settle_row(weights: npt.NDArray[np.float32], row: int) -> Settled:
    """Counts the outputs that change when the row is zeroed."""
    before, after = outputs(weights, row)
    changed = np.flatnonzero(before != after)
    only_this = changed.tolist() == [row] and after[row] == 0
    answer = "a" if only_this else "b" if after.any() else "c"
    return Settled(
        answer,
        f"Of {before.size:,} outputs, {changed.size} differs between the two: no. {row} goes from {before[row]:+.2f} "
        f"to {after[row]:.0f}. All other rows still multiply all {weights.shape[1]:,} inputs as before.",
    )


def nll_at(points: pl.DataFrame, order: str, rate: float) -> float:
    """NLL of one selector's curve (`series.points`) at a rate; `InputError` where it was not measured."""
    found = points.filter(pl.col("order") == order, (pl.col("rate") - rate).abs() < 1e-9)["nll"]
    if found.is_empty() or found[0] is None or not math.isfinite(found[0]):
        raise InputError(f"the sweep has no value at rate {rate:g}; run `selector-audit sweep demo` with that rate")
    return float(found[0])


def settle_zero(random_points: pl.DataFrame, unmasked_nll: float) -> Settled:
    """Perplexity of random masks at 30% over the unmasked model's."""
    nll = nll_at(random_points, "lerf", QUESTION_RATE)
    factor = math.exp(min(nll - unmasked_nll, 700))
    answer = "a" if factor < 2 else "b" if factor <= 5 else "c"
    return Settled(
        answer,
        f"The perplexity goes from {formats.perplexity(unmasked_nll)} to {formats.perplexity(nll)}, {factor:.3g} times "
        "as high. Rows work together: an output that is missing in one matrix is missing in everything built on it.",
    )


def settle_orders(points: pl.DataFrame, selector: str, unmasked_nll: float) -> Settled:
    """Harm (NLL above the unmasked model's) of MoRF against LeRF at 10%; alike within a tenth of the larger."""
    lerf, morf = (nll_at(points, order, ORDER_RATE) - unmasked_nll for order in ("lerf", "morf"))
    alike = abs(morf - lerf) <= 0.1 * max(abs(morf), abs(lerf))
    answer = "b" if alike else "a" if morf > lerf else "c"
    ppl = [formats.perplexity(nll) for nll in (lerf + unmasked_nll, morf + unmasked_nll, unmasked_nll)]
    return Settled(
        answer,
        f"{palette.title(selector)} at {formats.rate(ORDER_RATE)}: perplexity {ppl[0]} under LeRF, {ppl[1]} under "
        f"MoRF, {ppl[2]} without any cut. Choose another selector and see whether it passes as well.",
    )


def stability_and_gap(stability: pl.DataFrame, gap: pl.DataFrame) -> pl.DataFrame:
    """One row per selector: spearman (smallest calibration size against the reference), log_gap (mean of its seeds).
    The gap is that at the rate nearest to 30%, of losses up to where the model is destroyed, if the table knows that.
    Columns selector, size, spearman, rate, log_gap."""
    if "saturated_above" in gap.columns:
        morf, lerf = (pl.min_horizontal(name, "saturated_above") for name in ("nll_morf", "nll_lerf"))
        gap = gap.with_columns(log_gap=morf - lerf)
    smallest = stability.filter(pl.col("size") < pl.col("reference_size"))
    smallest = smallest.filter(pl.col("size") == pl.col("size").min().over("selector"))
    stable = smallest.group_by("selector", maintain_order=True).agg(pl.col("size").first(), pl.col("spearman").mean())
    rates = gap["rate"].unique().to_list()
    if stable.is_empty() or not rates:
        raise InputError("stability or gap is empty; run `selector-audit analyze demo stability gap` again")
    nearest = min(rates, key=lambda rate: abs(rate - QUESTION_RATE))
    valid = gap.filter(pl.col("rate") == nearest).group_by("selector").agg(pl.col("log_gap").mean())
    both = stable.join(valid, on="selector", maintain_order="left").with_columns(rate=pl.lit(nearest))
    both = both.filter(pl.col("spearman").is_finite(), pl.col("log_gap").is_finite())
    if both.height < 2:
        raise InputError("stability and gap share fewer than two selectors; run both analyses for the same ones")
    return both.select("selector", "size", "spearman", "rate", "log_gap")


def settle_stability(both: pl.DataFrame) -> Settled:
    """Is there a stable ranking whose gap is less than half of the largest?"""
    best = both.sort("log_gap", descending=True).row(0, named=True)
    stable = both.filter(pl.col("spearman") >= STABLE).sort("log_gap")
    if stable.is_empty():
        return Settled("", f"None of these rankings reaches a Spearman correlation of {STABLE:g}.")
    worst = stable.row(0, named=True)
    answer = "b" if worst["log_gap"] < MUCH_SMALLER * best["log_gap"] else "a"
    return Settled(
        answer,
        f"{palette.title(best['selector'])} has the largest gap ({best['log_gap']:.2f} nats, Spearman "
        f"{best['spearman']:.3f}). Of the rankings with a Spearman correlation of at least {STABLE:g}, "
        f"{palette.title(worst['selector'])} has the smallest: {worst['log_gap']:.2f} nats at Spearman "
        f"{worst['spearman']:.3f}. Stability says that a selector repeats itself, not that it is right.",
    )


def settle_install(point: dict[str, float]) -> Settled:
    """Refused shares of held-out prompts at the operating point (a row of `operating_points`)."""
    malign, benign = point["edited_malign"], point["edited_benign"]
    both = "b" if benign <= SELDOM else "a" if benign >= OFTEN else ""
    answer = "c" if malign < OFTEN else both
    return Settled(
        answer,
        f"Of held-out risky prompts {point['unedited_malign']:.0%} were refused before and {malign:.0%} after, of "
        f"harmless ones {point['unedited_benign']:.0%} before and {benign:.0%} after. Perplexity went up by "
        f"{point['perplexity_factor'] - 1:.1%}. "
        + ("That lies between the answers." if not answer else "The prompts were not used to choose the rows."),
    )


def settle_control(point: dict[str, float]) -> Settled:
    """Share of the edit's gain in refusals that the mean of the layer-matched random masks reaches."""
    gain = point["edited_malign"] - point["unedited_malign"]
    if gain <= 0:
        raise InputError(
            "this edit installs nothing, so there is no effect to share; choose another domain or selector"
        )
    share = (point["control_malign"] - point["unedited_malign"]) / gain
    answer = "a" if share < 0.25 else "b" if share <= 0.75 else "c"
    spread = point["control_malign_max"] - point["control_malign"]
    caution = (
        f" But look at the single draws: the strongest of the three reached {point['control_malign_max']:.0%}. One "
        "control is not enough."
        if spread > UNEVEN
        else ""
    )
    return Settled(
        answer,
        f"Refused risky prompts: {point['unedited_malign']:.0%} before, {point['edited_malign']:.0%} with the chosen "
        f"rows, {point['control_malign']:.0%} with random rows: {max(share, 0):.0%} of the effect. The chosen rows are "
        f"the best of a grid and the random ones were not searched, so this is a comparison and no test.{caution}",
    )
