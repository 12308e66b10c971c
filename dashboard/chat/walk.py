"""Break it: one prompt answered while more and more rows go, least relevant first beside most relevant first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dashboard.chat import edits, effects, live, stamps, writing
from dashboard.chat.edits import Edit
from dashboard.chat.live import Outcome
from dashboard.chat.shipped_effects import WALKED
from dashboard.chat.writing import NO_ROWS, Progress
from engine.edits.masks import Mask
from engine.records.errors import InputError
from engine.records.locks import OnWait, patient

ORDERS = ("lerf", "morf")
WHOLE = "whole"  # the step without an edit


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

    def why_broken(self, reference: stamps.Reference | None) -> str:
        """Why the reply counts as broken, "" where it does not or nothing is known to compare it with."""
        if self.broken or self.outcome is None:
            return self.broken
        return stamps.why_broken(self.outcome, reference)

    def stamp(self, reference: stamps.Reference | None) -> str:
        """As in `stamps`, "" before there is a reply."""
        if self.outcome is None:
            return stamps.BROKEN if self.broken else ""
        return stamps.stamp(self.outcome.refusal, self.outcome.judged, self.why_broken(reference))


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
    steps: Mapping[str, Step], entry: live.Entry, prompt: str, tokens: int, progress: Progress,
    on_wait: OnWait = patient,
) -> Iterator[None]:  # fmt: skip
    """Writes every step; yields whenever there is more to see.
    Edits whose effect is known are answered with the model as it is in one batch, the others by themselves as soon as
    theirs was measured. What the gate holds back says so. `InputError` as in `edits.mask_of` and `dialogue`."""
    masks: dict[str, Mask] = {WHOLE: NO_ROWS}
    for name, step in steps.items():
        if step.edit is not None:
            masks[name] = edits.mask_of(entry, step.edit, writing.scoring(progress))
    known = [name for name, one in steps.items() if one.edit is None or effects.is_known(entry, masks[name], one.edit)]
    for names in (known, *([name] for name in steps if name not in known)):
        answered = [name for name in names if _answered(steps[name], entry, masks[name], progress)]
        yield
        progress("Replies", sum(one.ended for one in steps.values()), len(steps))
        for event in writing.batch(entry, {name: masks[name] for name in answered}, prompt, tokens, on_wait=on_wait):
            if isinstance(event, Outcome):
                steps[event.side].outcome = event
            else:
                steps[event.side].text += event.text
            yield


def _answered(step: Step, entry: live.Entry, mask: Mask, progress: Progress) -> bool:
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
