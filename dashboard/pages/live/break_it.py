"""Live edit, Break it: one prompt while more and more rows go, least relevant first beside most relevant first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import formats, palette
from dashboard.charts.series import ORDER_TITLES
from dashboard.chat import edits, effects, marked, stamps, tries
from dashboard.chat.edits import Edit, Progress
from dashboard.chat.live import Entry, Outcome
from dashboard.chat.shipped_effects import WALKED
from dashboard.chat.tries import NO_ROWS
from dashboard.pages.live import rounds
from dashboard.pages.live.settings import Chosen, Places
from dashboard.show import layout, share
from dashboard.state import shipped_models as shipped
from engine.edits.masks import Mask
from engine.records.errors import InputError
from engine.records.locks import OnWait, patient

_KEY = "live-walk"
ORDERS = ("lerf", "morf")
WHOLE = "whole"  # the step without an edit
_HINT = (
    f"One prompt, {2 * len(WALKED)} edits: the rows that a selector calls least relevant go first beside those "
    f"that it calls most relevant, up to {WALKED[-1]:.0%} of all. Write a prompt and press Enter."
)
_HEADS = {"lerf": "Least relevant first", "morf": "Most relevant first"}
_DRAWN_EVERY_S = 0.1


@dataclass
class Step:
    """What is known of one edit. nats: NLL on text without and with it. broken: that it breaks the model, in words;
    withheld: why it is not answered."""

    edit: Edit | None
    text: str = ""
    outcome: Outcome[str] | None = None
    nats: tuple[float, float] | None = None
    broken: str = ""
    withheld: str = ""

    @property
    def ended(self) -> bool:
        """Is its reply written, or held back?"""
        return self.outcome is not None or bool(self.withheld)

    def stamp(self, reference: stamps.Reference | None) -> str:
        """As in `stamps`, "" before there is a reply."""
        if self.outcome is None:
            return stamps.BROKEN if self.broken else ""
        return stamps.stamp(self.outcome, stamps.why_broken(self.outcome, reference, self.broken))


@dataclass
class Walk(rounds.Round):
    """The prompt under every step."""

    steps: dict[str, Step] = field(default_factory=dict)
    reference: stamps.Reference | None = None


def show(chosen: Chosen, places: Places) -> None:
    edit = replace(chosen.request.edit, order="", rate=0.0)
    request = replace(chosen.request, edit=edit, margins=False, control_seed=None)
    possible = replace(chosen, pressed=chosen.pressed and bool(request.prompt))
    now = Walk(request, steps=steps_of(edit.selector, edit.run))
    rounds.show(_KEY, possible, request, places, now, _write, _draw, _below, _HINT)


def _write(now: Walk, entry: Entry, status: DeltaGenerator, drawn: DeltaGenerator) -> None:
    waiting, latest = layout.queued_in(status), 0.0
    request = now.request
    for _ in write(now.steps, entry, request.prompt, request.reply_tokens, layout.progress_in(status), waiting):
        if time.monotonic() - latest > _DRAWN_EVERY_S:
            _draw(now, drawn)
            latest = time.monotonic()
    _draw(now, drawn)
    now.reference = rounds.reference(entry, status)


def _draw(now: Walk, drawn: DeltaGenerator) -> None:
    heads = ["Removed", *(f"{head} ({ORDER_TITLES[order]})" for order, head in _HEADS.items())]
    whole = _cell(now.steps[WHOLE], now.reference, " sa-whole")
    lines = [
        "".join(f'<span role="columnheader">{head}</span>' for head in heads),
        f'<span role="rowheader">none</span>{whole}',
    ]
    for rate in WALKED:
        cells = "".join(_cell(now.steps[name_of(order, rate)], now.reference) for order in ORDERS)
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
    perplexity = "" if step.nats is None else f"<small>perplexity {formats.perplexity(step.nats[1])}</small>"
    text = marked.as_html(step.text.strip())
    return f'<div role="cell" tabindex="0" class="sa-step{more}"{edge}>{chip}{perplexity}<p>{text}</p></div>'


def _below(last: Walk) -> None:
    request, name = last.request, palette.title(last.request.edit.selector)
    if found := finding(last.steps, last.reference):
        st.markdown(f"**{name}**: {found}")
    rate = telling(last.steps, last.reference)
    heads = {WHOLE: "As it is"} | {
        name_of(order, rate): f"{formats.rate(rate)} removed, {_HEADS[order].lower()}" for order in ORDERS
    }
    columns = [
        share.Column(head, *stamps.chip(stamp), last.steps[step].text.strip())
        for step, head in heads.items()
        if (stamp := last.steps[step].stamp(last.reference))
    ]
    share.offer(request.prompt, columns, f"Rows of {shipped.title_of(request.model)} removed by {name}")
    rounds.explain(
        last.reference,
        "Perplexity: of text, under the edit. Replies are kept for as long as the model is in memory. None is shown "
        "under an edit that lowers refusal of risk prompts.",
    )


def name_of(order: str, rate: float) -> str:
    return f"{order} {rate:g}"


def steps_of(selector: str, run: str = "") -> dict[str, Step]:
    """All steps of a selector: the model as it is, then by growing rate both orders."""
    edited = {
        name_of(order, rate): Step(Edit("language model", selector, order=order, rate=rate, run=run))
        for rate in WALKED for order in ORDERS
    }  # fmt: skip
    return {WHOLE: Step(None), **edited}


def write(
    steps: Mapping[str, Step], entry: Entry, prompt: str, tokens: int, progress: Progress,
    on_wait: OnWait = patient,
) -> Iterator[None]:  # fmt: skip
    """Writes every step; yields whenever there is more to see.
    Edits whose effect is known are answered with the model as it is in one batch, the others by themselves as soon as
    theirs was measured. What the gate holds back says so. `InputError` as in `edits.mask_of` and `dialogue`."""
    masks: dict[str, Mask] = {WHOLE: NO_ROWS}
    for name, step in steps.items():
        if step.edit is not None:
            masks[name] = edits.mask_of(entry, step.edit, progress)
    known = [name for name, one in steps.items() if one.edit is None or effects.is_known(entry, masks[name], one.edit)]
    for names in (known, *([name] for name in steps if name not in known)):
        answered = [name for name in names if _answered(steps[name], entry, masks[name], progress)]
        yield
        progress("Replies", sum(one.ended for one in steps.values()), len(steps))
        for event in tries.batch(entry, {name: masks[name] for name in answered}, prompt, tokens, on_wait=on_wait):
            if isinstance(event, Outcome):
                steps[event.side].outcome = event
            else:
                steps[event.side].text += event.text
            yield


def _answered(step: Step, entry: Entry, mask: Mask, progress: Progress) -> bool:
    """Learns what a step's edit does. returns whether its reply may be seen."""
    if step.edit is None:
        return True
    try:
        effect = effects.checked_effect(entry, mask, step.edit, progress)
    except InputError as error:
        step.withheld = str(error)
        return False
    step.nats, step.broken = effect.nats, effect.on_text() if effect.broken else ""
    return True


def finding(steps: Mapping[str, Step], reference: stamps.Reference | None) -> str:
    """At which share the replies of either order break first, in one sentence; "" until all steps have ended."""
    if not all(step.ended for step in steps.values()):
        return ""
    least, most = (_first_break(steps, order, reference) for order in ORDERS)
    return f"with the least relevant rows first {least}; with the most relevant first {most}."


def telling(steps: Mapping[str, Step], reference: stamps.Reference | None) -> float:
    """The rate that tells most: the first at which both orders are answered, and one reply is broken and the other not;
    else that of the middle."""
    for rate in WALKED:
        both = [steps[name_of(order, rate)].stamp(reference) for order in ORDERS]
        if all(both) and both.count(stamps.BROKEN) == 1:
            return rate
    return WALKED[len(WALKED) // 2]


def _first_break(steps: Mapping[str, Step], order: str, reference: stamps.Reference | None) -> str:
    shown = {rate: steps[name_of(order, rate)] for rate in WALKED if not steps[name_of(order, rate)].withheld}
    if not shown:
        return "no reply is shown"
    for rate, step in shown.items():
        if step.stamp(reference) == stamps.BROKEN:
            return f"the reply breaks first at {rate:.0%}"
    return f"no reply is broken, up to {max(shown):.0%}"
