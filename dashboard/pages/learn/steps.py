"""The lessons in words, the figures of their steps, and which answer of each the measured numbers settle.

No answer is marked right by hand: each `settle_*` reads it off the numbers that the step's figure shows. A step draws
and returns (settled, values, provenance)."""

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import formats, learn as learn_chart, palette, refusal_values, series
from dashboard.chat import answers, edits, live, measure
from dashboard.chat.answers import Say
from dashboard.chat.live import Entry
from dashboard.pages.overview import watch_it
from dashboard.show import layout, selection, stage, tools
from dashboard.state import results, shipped_models as shipped, weights
from engine.edits.masks import Mask
from engine.records.errors import InputError
from engine.run.refusal_plan import RefusalPlan
from engine.stats.limits import Thresholds

QUESTION_RATE, FACTORS = 0.3, (2, 5)  # FACTORS: of the perplexity, in the answers
ORDERS_OF, ORDER_RATE = "lrp", 0.1
STABLE = Thresholds().spearman  # from which a ranking counts as stable here: the limit of the verdicts
MUCH_SMALLER = 0.5  # of the largest log gap
OFTEN, SELDOM = 0.5, 0.2  # refused shares
UNEVEN = 0.15  # refused share by which the strongest control lies above their mean


@dataclass(frozen=True)
class Lesson:
    """One step. answers: id -> text. id: part of links, never renamed. ahead, reading: above its figure before there is
    a guess, and how to read that."""

    id: str
    title: str
    text: str
    ahead: str
    reading: str
    question: str
    answers: dict[str, str]


_WORDS = tomllib.loads(Path(__file__).with_name("lessons.toml").read_text("utf-8"))
LESSONS = tuple(Lesson(**one) for one in _WORDS["lesson"])


@dataclass(frozen=True)
class Settled:
    """The answer that the figure supports (empty: none of them), and why, with its numbers."""

    answer: str
    why: str


Step = tuple[Settled, pl.DataFrame, str]
Point = dict[str, Any]
_RATES = tuple(
    f"{when}_{kind}{end}"
    for when in ("unedited", "edited")
    for kind in ("malign", "benign")
    for end in ("", "_low", "_high")
)
NEEDED = ("lambda", "k", "rows_removed", "pairs", *_RATES, "control_malign", "control_malign_max", "perplexity_factor")
REPLY_TOKENS = 40
BLOCK, PROJECTION, ROW = 0, "q_proj", 5  # the matrix of step 1, and the row with which it begins
UNEDITED, RISKY = "as it is", "risky prompts"


def before_guess(step: str) -> go.Figure:
    """A picture for a step that does not tell its answer: the unedited model on the axes of the figure to come."""
    if step == "row":
        values = weights.matrix(BLOCK, PROJECTION)
        return learn_chart.weights(values, ROW, *outputs(values, ROW)[:2], around=2 if stage.on() else 3)
    if step in ("zero", "orders"):
        selector, rate = ("random", QUESTION_RATE) if step == "zero" else (ORDERS_OF, ORDER_RATE)
        _, points, unmasked = _sweep([selector])
        return learn_chart.curves(points, selector, (), unmasked, rate, FACTORS)
    if step == "stability":
        return learn_chart.stable(_stability()[0], STABLE)
    point, _ = _point()
    bars = _refused(point)
    return learn_chart.refusals(bars.filter(group=RISKY) if step == "control" else bars.filter(name=UNEDITED), "")


def row() -> Step:
    values = weights.matrix(BLOCK, PROJECTION)
    first, second = st.columns(2, vertical_alignment="bottom")
    with first:
        chosen = selection.number("Row", 0, values.shape[0] - 1, "learn_row", default=ROW)
    with second:
        zeroed = selection.toggle("Zero this row", "learn_zeroed", default=True)
    given, before, after = outputs(values, chosen)
    figure = learn_chart.weights(values, chosen, given, after if zeroed else before, zeroed=zeroed)
    tools.show(figure, "weights", key="learn-weights", hero=stage.on())
    st.caption("The input is made up (fixed random numbers); the weights are the model's own.")
    frame = pl.DataFrame(
        {"output": np.arange(before.size), "as_it_is": before, "row_zeroed": after, "row": [chosen] * before.size}
    )
    provenance = f"Weights of the shipped model as they stand in its file: block {BLOCK}, {PROJECTION}."
    return settle_row(values, chosen), frame, provenance


def _sweep(selectors: list[str]) -> tuple[results.Curves, pl.DataFrame, float]:
    """The shipped sweep, the points of some selectors in both orders, the unmasked NLL."""
    curves = results.read_run(shipped.demo_results_dir())
    model = curves.models[0]
    unmasked = series.unmasked_nll(curves.frame, model)
    points = series.points(curves.frame, model, selectors, results.ORDERS, (0.0, 1.0))
    if unmasked is None or points.is_empty():
        raise InputError("the shipped sweep lacks the unmasked model or this selector; run `selector-audit sweep demo`")
    return curves, points, unmasked


def zero() -> Step:
    """Random rows, more and more of them: the picture that plays, the measured curve, and one more draw made now."""
    curves, points, unmasked = _sweep(["random"])
    folder = shipped.demo_results_dir()
    if watch_it.scored(folder):
        with layout.told():
            sweep = curves.frame.filter(pl.col("model") == curves.models[0])
            watch_it.alone(folder, sweep, "random", "lerf", "Rows drawn by lot")
    shown = points.filter(pl.col("order") == "lerf")
    rates = [rate for rate in shown["rate"].to_list() if rate > 0]
    nearest = min(rates, key=lambda value: abs(value - 0.1))
    rate = selection.pick("Rows zeroed", rates, "learn_rate", default=nearest, title=formats.rate)
    nll = nll_at(shown, "lerf", rate)
    figure = learn_chart.curves(points, "random", ["lerf"], unmasked, rate)
    tools.show(figure, "random-rows", key="learn-curves", hero=stage.on())
    tokens = int(curves.frame["tokens"][0] or 0)
    st.caption(
        f"At {formats.rate(rate)}: perplexity {formats.perplexity(nll)} on {tokens:,} tokens of the evaluation text, "
        f"the mean over the seeds. Draw again yourself: that is measured on {measure.WINDOWS} windows of "
        f"{measure.WINDOW_TOKENS} tokens, so that it comes soon; even for the same rows the two differ."
    )

    def draw(entry: Entry, _say: Say) -> Mask:
        n_rows = entry.loaded.rows.n_rows
        return np.sort(np.random.default_rng().choice(n_rows, size=round(rate * n_rows), replace=False))

    request = answers.Request(live.DEMO, f"{formats.rate(rate)} of the rows, drawn now", draw)
    answers.trial("learn-zero", "Zero some now", request)
    return settle_zero(shown, unmasked), shown, curves.provenance


def orders() -> Step:
    curves = results.read_run(shipped.demo_results_dir())
    selector = selection.choose_selector(curves.frame, "learn_selector", default=ORDERS_OF)
    curves, points, unmasked = _sweep([selector])
    figure = learn_chart.curves(points, selector, results.ORDERS, unmasked, ORDER_RATE)
    tools.show(figure, f"orders-{selector}", key="learn-curves", hero=stage.on())
    return settle_orders(points, selector, unmasked), points, curves.provenance


def _stability() -> tuple[pl.DataFrame, str]:
    stable, gap = (results.read_table(shipped.demo_results_dir(), stem) for stem in ("stability", "gap"))
    return stability_and_gap(stable.frame, gap.frame), stable.provenance


def stability() -> Step:
    both, provenance = _stability()
    figure = learn_chart.stable_and_valid(both, STABLE)
    tools.show(figure, "stable-and-valid", key="learn-stability", hero=stage.on())
    size, rate = both.select("size", "rate").row(0)
    st.caption(
        f"Spearman: the ranking from {size} windows of text against the one from all of them. Log gap: NLL under MoRF "
        f"minus NLL under LeRF at {formats.rate(rate)}, both counted up to where the model is destroyed."
    )
    return settle_stability(both), both, provenance


def install() -> Step:
    """Refused shares before and after the measured edit, and the edit itself on a prompt."""
    point, provenance = _point()
    bars = _refused(point)
    _figure(bars, point, "Refused before and after the edit")
    prompt = _prompt(point["domain"])
    answers.trial("learn-install", "Zero the rows and ask", _request(point, prompt, None))
    return settle_install(point), bars, provenance


def control() -> Step:
    """The same with random rows, as many in every matrix."""
    point, provenance = _point()
    bars = _bars([
        (RISKY, UNEDITED, *refusal_values.rates(point, "unedited_malign")),
        (RISKY, "chosen rows zeroed", *refusal_values.rates(point, "edited_malign")),
        (RISKY, "random rows, mean of three", point["control_malign"], None, None),
        (RISKY, "random rows, strongest of three", point["control_malign_max"], None, None),
    ])  # fmt: skip
    _figure(bars, point, "Refused with chosen and with random rows")
    prompt = _prompt(point["domain"])
    seeds = RefusalPlan.control_seeds
    seed = selection.switch("Draw", seeds, "learn_seed", default=seeds[0], title=lambda value: f"seed {value}")
    # One below the other: each has two replies beside each other, which need the width.
    answers.trial("learn-real", "Zero the chosen rows", _request(point, prompt, None))
    answers.trial("learn-control", "Zero random rows instead", _request(point, prompt, seed))
    return settle_control(point), bars, provenance


def _point() -> tuple[Point, str]:
    points = results.read_table(shipped.demo_results_dir(), "operating_points")
    missing = [name for name in NEEDED if name not in points.frame.columns]
    if missing:
        raise InputError(
            f"the shipped operating points lack {', '.join(missing)}; rebuild them with `python -m precomputed.recipe`"
        )
    frame = points.frame.drop_nulls(NEEDED).filter(pl.col("selector") != "random")
    if frame.is_empty():
        raise InputError("no operating point was measured; rebuild them with `python -m precomputed.recipe`")
    first, second = st.columns(2)
    frame = frame.filter(domain=selection.choose_domain(frame, "learn_domain", keep=True, place=first))
    selector = selection.choose_selector(frame, "learn_by", keep=True, place=second)
    return frame.filter(selector=selector).row(0, named=True), points.provenance


def _refused(point: Point) -> pl.DataFrame:
    return _bars([
        (prompts, name, *refusal_values.rates(point, f"{when}_{kind}"))
        for prompts, kind in ((RISKY, "malign"), ("harmless prompts", "benign"))
        for name, when in ((UNEDITED, "unedited"), ("rows zeroed", "edited"))
    ])  # fmt: skip


def _bars(lines: list[tuple[str, str, float | None, float | None, float | None]]) -> pl.DataFrame:
    schema = {"group": pl.String, "name": pl.String} | dict.fromkeys(("share", "low", "high"), pl.Float64)
    return pl.DataFrame(lines, schema=schema, orient="row")


def _figure(bars: pl.DataFrame, point: Point, heading: str) -> None:
    figure = learn_chart.refusals(bars, heading)
    tools.show(figure, f"refusals-{point['domain']}", key="learn-refusals", hero=stage.on())
    st.caption(
        f"{point['rows_removed']:,} rows ({formats.rate(point['k'])} of all) are zeroed, chosen on other prompts than "
        f"the {point['pairs']} of each kind that are counted here. Lines on the bars: Wilson 95% intervals."
    )


def _prompt(domain: str) -> str:
    offered = [example for example in shipped.examples() if example.domain == domain]
    if not offered:
        return ""
    titles = {example.prompt: f"{example.kind}: {example.prompt}" for example in offered}
    return selection.choose("Prompt", list(titles), "learn_prompt", title=titles.__getitem__)


def _request(point: Point, prompt: str, seed: int | None) -> answers.Request:
    """The edit itself, or with `seed` its layer-matched random control."""
    edit = edits.Edit("refusal", point["selector"], domain=point["domain"], lam=point["lambda"], k=point["k"])

    def mask(entry: Entry, say: Say) -> Mask:
        real = edits.mask_of(entry, edit, say)
        return real if seed is None else edits.control_of(entry, real, seed)

    label = edit.describe() if seed is None else f"Random rows, as many in every matrix (seed {seed})"
    return answers.Request(live.DEMO, label, mask, prompt, REPLY_TOKENS, edit=edit, control=seed is not None)


def outputs(weights: npt.NDArray[np.float32], row: int) -> tuple[npt.NDArray[np.float64], ...]:
    """A made-up input (fixed normal numbers) [columns], and what a matrix makes of it as it is and with one row zeroed,
    both [rows]."""
    given = np.random.default_rng(0).standard_normal((weights.shape[1],))
    before = weights.astype(np.float64) @ given
    edited = weights.astype(np.float64)
    edited[row] = 0
    return given, before, edited @ given


def settle_row(weights: npt.NDArray[np.float32], row: int) -> Settled:
    """Counts the outputs that change when the row is zeroed."""
    _, before, after = outputs(weights, row)
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
    nlls = points.filter(pl.col("order") == order, (pl.col("rate") - rate).abs() < 1e-9)["nll"]
    if nlls.is_empty() or nlls[0] is None or not math.isfinite(nlls[0]):
        raise InputError(f"the sweep has no value at rate {rate:g}; run `selector-audit sweep demo` with that rate")
    return float(nlls[0])


def settle_zero(random_points: pl.DataFrame, unmasked_nll: float) -> Settled:
    """Perplexity of random masks at 30% over the unmasked model's."""
    nll = nll_at(random_points, "lerf", QUESTION_RATE)
    factor = math.exp(min(nll - unmasked_nll, 700))
    answer = "a" if factor < FACTORS[0] else "b" if factor <= FACTORS[1] else "c"
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
