"""Figures of the steps: rows, rankings and their tests, installing refusal and its control.

Each draws and returns (settled, values, provenance)."""

from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from dashboard.charts import formats, learn as learn_chart, series
from dashboard.chat import edits, live, measure, trial
from dashboard.chat.answers import Say
from dashboard.chat.live import Entry
from dashboard.pages.learn import answers as lesson_answers
from dashboard.pages.learn.answers import Settled
from dashboard.pages.overview import watch_it
from dashboard.show import layout, selection, stage, tools
from dashboard.state import results, shipped, weights
from engine.edits.masks import Mask
from engine.records.errors import InputError
from engine.run.refusal_plan import RefusalPlan

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


def row() -> Step:
    found = weights.matrices()
    if not found:
        raise InputError(
            "the shipped model's file holds no projections; rebuild it with `python -m precomputed.recipe`"
        )
    first, second, third, fourth = st.columns([4, 4, 4, 5], vertical_alignment="bottom")
    block = selection.choose("Block", list(dict.fromkeys(entry.block for entry in found)), "learn_block", place=first)
    names = [entry.projection for entry in found if entry.block == block]
    projection = selection.choose("Projection", names, "learn_projection", default="q_proj", place=second)
    values = weights.matrix(block, projection)
    with third:
        chosen = selection.number("Row", 0, values.shape[0] - 1, "learn_row", default=5)
    with fourth:
        zeroed = selection.toggle("Zero this row", "learn_zeroed")
    figure = learn_chart.weights(values, chosen, zeroed)
    tools.show(figure, f"weights-block{block}-{projection}", key="learn-weights", hero=stage.on())
    before, after = lesson_answers.outputs(values, chosen)
    tools.show(learn_chart.outputs(before, after), "outputs", key="learn-outputs")
    st.caption("The input is made up (fixed random numbers); the weights are the model's own.")
    frame = pl.DataFrame(
        {"output": np.arange(before.size), "as_it_is": before, "row_zeroed": after, "row": [chosen] * before.size}
    )
    provenance = f"Weights of the shipped model as they stand in its file: block {block}, {projection}."
    return lesson_answers.settle_row(values, chosen), frame, provenance


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
    nll = lesson_answers.nll_at(shown, "lerf", rate)
    figure = learn_chart.curves(points, "random", ["lerf"], unmasked, rate)
    tools.show(figure, "random-rows", key="learn-curves", hero=stage.on())
    st.caption(
        f"At {formats.rate(rate)}: perplexity {formats.perplexity(nll)}, the mean over the seeds. Draw again yourself:"
    )

    tokens = int(curves.frame["tokens"][0] or 0)
    st.caption(
        f"The curve was measured on {tokens:,} tokens of the evaluation text, the numbers below on "
        f"{measure.WINDOWS} windows of {measure.WINDOW_TOKENS} tokens of it, so that they come soon; even "
        "for the same rows the two differ."
    )

    def draw(entry: Entry, _say: Say) -> Mask:
        n_rows = entry.loaded.rows.n_rows
        return np.sort(np.random.default_rng().choice(n_rows, size=round(rate * n_rows), replace=False))

    request = trial.Request(live.DEMO, f"{formats.rate(rate)} of the rows, drawn now", draw)
    trial.trial("learn-zero", "Zero some now", request)
    return lesson_answers.settle_zero(shown, unmasked), shown, curves.provenance


def orders() -> Step:
    curves = results.read_run(shipped.demo_results_dir())
    selector = selection.choose_selector(curves.frame, "learn_selector", default="lrp")
    curves, points, unmasked = _sweep([selector])
    figure = learn_chart.curves(points, selector, results.ORDERS, unmasked, lesson_answers.ORDER_RATE)
    tools.show(figure, f"orders-{selector}", key="learn-curves", hero=stage.on())
    return lesson_answers.settle_orders(points, selector, unmasked), points, curves.provenance


def stability() -> Step:
    folder = shipped.demo_results_dir()
    stable, gap = (results.read_table(folder, stem) for stem in ("stability", "gap"))
    both = lesson_answers.stability_and_gap(stable.frame, gap.frame)
    figure = learn_chart.stable_and_valid(both, lesson_answers.STABLE)
    tools.show(figure, "stable-and-valid", key="learn-stability", hero=stage.on())
    size, rate = both.select("size", "rate").row(0)
    st.caption(
        f"Spearman: the ranking from {size} windows of text against the one from all of them. Log gap: NLL under MoRF "
        f"minus NLL under LeRF at {formats.rate(rate)}, both counted up to where the model is destroyed."
    )
    return lesson_answers.settle_stability(both), both, stable.provenance


def install() -> Step:
    """Refused shares before and after the measured edit, and the edit itself on a prompt."""
    point, provenance = _point()
    bars = _bars([
        (prompts, name, *_rate(point, f"{when}_{kind}"))
        for prompts, kind in (("risky prompts", "malign"), ("harmless prompts", "benign"))
        for name, when in (("as it is", "unedited"), ("rows zeroed", "edited"))
    ])  # fmt: skip
    _figure(bars, point, "Refused before and after the edit")
    prompt = _prompt(point["domain"])
    trial.trial("learn-install", "Zero the rows and ask", _request(point, prompt, None))
    return lesson_answers.settle_install(point), bars, provenance


def control() -> Step:
    """The same with random rows, as many in every matrix."""
    point, provenance = _point()
    bars = _bars([
        ("risky prompts", "as it is", *_rate(point, "unedited_malign")),
        ("risky prompts", "chosen rows zeroed", *_rate(point, "edited_malign")),
        ("risky prompts", "random rows, mean of three", point["control_malign"], None, None),
        ("risky prompts", "random rows, strongest of three", point["control_malign_max"], None, None),
    ])  # fmt: skip
    _figure(bars, point, "Refused with chosen and with random rows")
    prompt = _prompt(point["domain"])
    seeds = RefusalPlan.control_seeds
    seed = selection.switch("Draw", seeds, "learn_seed", default=seeds[0], title=lambda value: f"seed {value}")
    # One below the other: each has two replies beside each other, which need the width.
    trial.trial("learn-real", "Zero the chosen rows", _request(point, prompt, None))
    trial.trial("learn-control", "Zero random rows instead", _request(point, prompt, seed))
    return lesson_answers.settle_control(point), bars, provenance


def _point() -> tuple[Point, str]:
    found = results.read_table(shipped.demo_results_dir(), "operating_points")
    missing = [name for name in NEEDED if name not in found.frame.columns]
    if missing:
        raise InputError(
            f"the shipped operating points lack {', '.join(missing)}; rebuild them with `python -m precomputed.recipe`"
        )
    frame = found.frame.drop_nulls(NEEDED).filter(pl.col("selector") != "random")
    if frame.is_empty():
        raise InputError("no operating point was measured; rebuild them with `python -m precomputed.recipe`")
    first, second = st.columns(2)
    frame = frame.filter(domain=selection.choose_domain(frame, "learn_domain", keep=True, place=first))
    selector = selection.choose_selector(frame, "learn_by", keep=True, place=second)
    return frame.filter(selector=selector).row(0, named=True), found.provenance


def _rate(point: Point, name: str) -> tuple[float, float, float]:
    return point[name], point[f"{name}_low"], point[f"{name}_high"]


def _bars(lines: list[tuple[str, str, float, float | None, float | None]]) -> pl.DataFrame:
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


def _request(point: Point, prompt: str, seed: int | None) -> trial.Request:
    """The edit itself, or with `seed` its layer-matched random control."""
    edit = edits.Edit("refusal", point["selector"], domain=point["domain"], lam=point["lambda"], k=point["k"])

    def mask(entry: Entry, say: Say) -> Mask:
        from engine.edits.controls import layer_matched

        real = edits.mask_of(entry, edit, say)
        return real if seed is None else layer_matched(real, entry.loaded.rows, seed)

    label = edit.describe() if seed is None else f"Random rows, as many in every matrix (seed {seed})"
    return trial.Request(live.DEMO, label, mask, prompt, REPLY_TOKENS, edit=edit, control=seed is not None)
