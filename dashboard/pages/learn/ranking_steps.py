"""Figures of the steps on rows, rankings and their tests. Each draws and returns (settled, values, provenance)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import streamlit as st

from dashboard.charts import formats, learn as learn_chart, palette, series
from dashboard.chat import live, measure, trial
from dashboard.pages.learn import answers as lesson_answers
from dashboard.pages.learn.answers import Settled
from dashboard.pages.overview import watch_it
from dashboard.show import layout, selection, stage, tools
from dashboard.state import results, shipped, weights
from engine.records.errors import InputError

if TYPE_CHECKING:
    from dashboard.chat.answers import Say
    from dashboard.chat.live import Entry
    from engine.edits.masks import Mask

Step = tuple[Settled, pl.DataFrame, str]


def row() -> Step:
    """One matrix, one row, its outputs."""
    found = weights.matrices()
    if not found:
        raise InputError(
            "the shipped model's file holds no projections; rebuild it with `python -m precomputed.recipe`"
        )
    first, second, third, fourth = st.columns([4, 4, 4, 5], vertical_alignment="bottom")
    block = selection.choose("Block", list(dict.fromkeys(entry.block for entry in found)), "learn_block", place=first)
    names = [entry.projection for entry in found if entry.block == block]
    with second:
        projection = selection.choose(
            "Projection", names, "learn_projection", default="q_proj" if "q_proj" in names else None
        )
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
    rate = selection.pick(
        "Rows zeroed", rates, "learn_rate", default=min(rates, key=lambda value: abs(value - 0.1)), title=formats.rate
    )
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

    trial.trial(
        "learn-zero", "Zero some now", trial.Request(live.DEMO, f"{formats.rate(rate)} of the rows, drawn now", draw)
    )
    return lesson_answers.settle_zero(shown, unmasked), shown, curves.provenance


def orders() -> Step:
    """LeRF and MoRF of one selector."""
    curves = results.read_run(shipped.demo_results_dir())
    known = palette.in_order(curves.frame["selector"].unique().to_list())
    selector = selection.choose(
        "Selector", known, "learn_selector", default="lrp" if "lrp" in known else None, title=palette.title
    )
    curves, points, unmasked = _sweep([selector])
    figure = learn_chart.curves(points, selector, results.ORDERS, unmasked, lesson_answers.ORDER_RATE)
    tools.show(figure, f"orders-{selector}", key="learn-curves", hero=stage.on())
    return lesson_answers.settle_orders(points, selector, unmasked), points, curves.provenance


def stability() -> Step:
    """Stability against validity, where both were measured."""
    folder = shipped.demo_results_dir()
    stable, gap = (results.read_table(folder, stem) for stem in ("stability", "gap"))
    both = lesson_answers.stability_and_gap(stable.frame, gap.frame)
    figure = learn_chart.stable_and_valid(both, lesson_answers.STABLE)
    tools.show(figure, "stable-and-valid", key="learn-stability", hero=stage.on())
    size, rate = both.row(0, named=True)["size"], both.row(0, named=True)["rate"]
    st.caption(
        f"Spearman: the ranking from {size} windows of text against the one from all of them. Log gap: NLL under MoRF "
        f"minus NLL under LeRF at {formats.rate(rate)}, both counted up to where the model is destroyed."
    )
    return lesson_answers.settle_stability(both), both, stable.provenance
