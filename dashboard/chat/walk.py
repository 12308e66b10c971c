"""Break it: one prompt answered while more and more rows go, least relevant first beside most relevant first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from dashboard.chat import edits, effects, live, stamps, writing
from dashboard.chat.edits import Edit
from dashboard.chat.live import Outcome
from dashboard.chat.shipped_effects import WALKED
from dashboard.chat.writing import NO_ROWS, Progress
from engine.records.errors import InputError
from engine.records.locks import OnWait, patient

if TYPE_CHECKING:
    from engine.edits.masks import Mask
    from engine.measures.fluency import Reference

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

    def why_broken(self, reference: Reference | None) -> str:
        """Why the reply counts as broken, "" where it does not or nothing is known to compare it with."""
        if self.broken or self.outcome is None or reference is None:
            return self.broken
        read = self.outcome.log_probabilities
        return reference.broken(fmean(read) if read else None, self.outcome.repeated)

    def stamp(self, reference: Reference | None) -> str:
        """As in `stamps`, "" before there is a reply."""
        if self.outcome is None:
            return stamps.BROKEN if self.broken else ""
        return stamps.stamp(self.outcome.refusal, self.outcome.judged, self.why_broken(reference))


def name_of(order: str, rate: float) -> str:
    """Of a step."""
    return f"{order} {rate:g}"


def steps(selector: str, run: str = "") -> dict[str, Step]:
    """All steps of a selector: the model as it is, then by growing rate both orders."""
    edited = {
        name_of(order, rate): Step(Edit("language model", selector, order=order, rate=rate, run=run))
        for rate in WALKED for order in ORDERS
    }  # fmt: skip
    return {WHOLE: Step(None), **edited}


def write(
    found: Mapping[str, Step],
    entry: live.Entry,
    prompt: str,
    tokens: int,
    progress: Progress,
    on_wait: OnWait = patient,
) -> Iterator[None]:
    """Writes every step; yields whenever there is more to see.

    Edits whose effect is known are answered with the model as it is in one batch, the others by themselves as soon as
    theirs was measured. What the gate holds back says so. `InputError` as in `edits.mask_of` and `dialogue`.
    """
    masks: dict[str, Mask] = {WHOLE: NO_ROWS}
    for name, step in found.items():
        if step.edit is not None:
            masks[name] = edits.mask_of(entry, step.edit, writing.scoring(progress))
    known = [name for name, one in found.items() if one.edit is None or effects.is_known(entry, masks[name], one.edit)]
    for names in (known, *([name] for name in found if name not in known)):
        answered = [name for name in names if _answered(found[name], entry, masks[name], progress)]
        yield
        progress("Writing", 0, 0)
        for event in writing.batch(entry, {name: masks[name] for name in answered}, prompt, tokens, on_wait=on_wait):
            if isinstance(event, Outcome):
                found[event.side].outcome = event
            else:
                found[event.side].text += event.text
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


def finding(found: Mapping[str, Step], reference: Reference | None) -> str:
    """In which order the replies break first, in one sentence; "" until all steps have ended."""
    if any(step.outcome is None and not step.withheld for step in found.values()):
        return ""
    least, most = (_told(_first_broken(found, order, reference)) for order in ORDERS)
    return f"with the least relevant rows first the reply {least}; with the most relevant first it {most}."


def telling(found: Mapping[str, Step], reference: Reference | None) -> float:
    """The rate that tells most: the first at which the orders part, one reply broken and the other not; else that of
    the middle."""
    for rate in WALKED:
        least, most = (found[name_of(order, rate)].stamp(reference) == stamps.BROKEN for order in ORDERS)
        if least != most:
            return rate
    return WALKED[len(WALKED) // 2]


def _first_broken(found: Mapping[str, Step], order: str, reference: Reference | None) -> float | None:
    broken = (rate for rate in WALKED if found[name_of(order, rate)].stamp(reference) == stamps.BROKEN)
    return next(broken, None)


def _told(rate: float | None) -> str:
    return f"is broken at none of the shares up to {WALKED[-1]:.0%}" if rate is None else f"breaks first at {rate:.0%}"
