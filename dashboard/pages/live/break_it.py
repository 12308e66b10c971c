"""Live edit, Break it: one prompt while more and more rows go, least relevant first beside most relevant first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import formats, palette
from dashboard.charts.series import ORDER_TITLES
from dashboard.chat import marked, stamps, walk
from dashboard.chat.live import Entry
from dashboard.chat.walk import Step
from dashboard.pages.live import rounds
from dashboard.pages.live.settings import Chosen, Places
from dashboard.show import layout, share
from dashboard.state import shipped

_KEY = "live-walk"
_HINT = (
    f"One prompt, {2 * len(walk.WALKED)} edits: the rows that a selector calls least relevant go first beside those "
    f"that it calls most relevant, up to {walk.WALKED[-1]:.0%} of all. Write a prompt and press Enter."
)
_HEADS = {"lerf": "Least relevant first", "morf": "Most relevant first"}
_DRAWN_EVERY_S = 0.1


@dataclass
class Walk(rounds.Round):
    """The prompt under every step."""

    steps: dict[str, Step] = field(default_factory=dict)
    reference: stamps.Reference | None = None


def show(chosen: Chosen, places: Places) -> None:
    edit = replace(chosen.request.edit, order="", rate=0.0)
    request = replace(chosen.request, edit=edit, margins=False, control_seed=None)
    possible = replace(chosen, pressed=chosen.pressed and bool(request.prompt))
    now = Walk(request, steps=walk.steps_of(edit.selector, edit.run))
    rounds.show(_KEY, possible, request, places, now, _write, _draw, _below, _HINT)


def _write(now: Walk, entry: Entry, status: DeltaGenerator, drawn: DeltaGenerator) -> None:
    waiting, latest = layout.queued_in(status), 0.0
    request = now.request
    for _ in walk.write(now.steps, entry, request.prompt, request.reply_tokens, layout.progress_in(status), waiting):
        if time.monotonic() - latest > _DRAWN_EVERY_S:
            _draw(now, drawn)
            latest = time.monotonic()
    _draw(now, drawn)
    now.reference = rounds.reference(entry, status)


def _draw(now: Walk, drawn: DeltaGenerator) -> None:
    heads = ["Removed", *(f"{head} ({ORDER_TITLES[order]})" for order, head in _HEADS.items())]
    whole = _cell(now.steps[walk.WHOLE], now.reference, " sa-whole")
    lines = [
        "".join(f'<span role="columnheader">{head}</span>' for head in heads),
        f'<span role="rowheader">none</span>{whole}',
    ]
    for rate in walk.WALKED:
        cells = "".join(_cell(now.steps[walk.name_of(order, rate)], now.reference) for order in walk.ORDERS)
        lines.append(f'<span role="rowheader">{formats.rate(rate)}</span>{cells}')
    body = "".join(f'<div role="row">{line}</div>' for line in lines)
    drawn.html(f'<div class="sa-walk" role="table" aria-label="Replies as rows are removed">{body}</div>')


def _cell(step: Step, reference: stamps.Reference | None, more: str = "") -> str:
    if step.withheld:
        why = step.withheld.partition(" (")[0]  # without what was asked and what to do instead
        return f'<div role="cell" class="sa-step"><small>Not shown: {marked.as_html(why)}</small></div>'
    look = stamps.LOOKS.get(stamp := step.stamp(reference))
    chip = f'<b style="background:{look.colour}">{look.icon} {stamp}</b>' if look else "…"
    edge = f' style="border-color:{look.colour}"' if look else ""
    told = "" if step.nats is None else f"<small>perplexity {formats.perplexity(step.nats[1])}</small>"
    text = marked.as_html(step.text.strip())
    return f'<div role="cell" tabindex="0" class="sa-step{more}"{edge}>{chip}{told}<p>{text}</p></div>'


def _below(last: Walk) -> None:
    request, name = last.request, palette.title(last.request.edit.selector)
    if found := walk.finding(last.steps, last.reference):
        st.markdown(f"**{name}**: {found}")
    rate = walk.telling(last.steps, last.reference)
    heads = {walk.WHOLE: "As it is"} | {
        walk.name_of(order, rate): f"{formats.rate(rate)} removed, {_HEADS[order].lower()}" for order in walk.ORDERS
    }
    columns = [
        share.Column(head, *stamps.chip(stamp), last.steps[step].text.strip())
        for step, head in heads.items()
        if (stamp := last.steps[step].stamp(last.reference))
    ]
    share.offer(request.prompt, columns, f"Rows of {shipped.title_of(request.model)} removed by {name}")
    layout.footnote(
        "Perplexity: of text, under the edit. Replies are kept for as long as the model is in memory. None is shown "
        "under an edit that lowers refusal of risk prompts.",
        stamps.explained(last.reference),
    )
