"""Figures of the steps on installing refusal and on its control: each returns (settled, values, provenance)."""

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import formats, learn as learn_chart
from dashboard.chat import edits, live, trial
from dashboard.chat.answers import Say
from dashboard.chat.live import Entry
from dashboard.pages.learn import answers as lesson_answers
from dashboard.pages.learn.answers import Settled
from dashboard.show import selection, stage, tools
from dashboard.state import results, shipped
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
