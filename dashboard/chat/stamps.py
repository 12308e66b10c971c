"""A word for a reply, from ANSWERS to NOT JUDGED, with its colour and why; and its facts in a line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dashboard.chat import shipped_effects
from dashboard.chat.live import Entry, Outcome, Side, fitting_threads
from dashboard.show import layout
from dashboard.state import shipped_models as shipped
from engine.records.errors import InputError
from engine.records.locks import OnWait, patient

if TYPE_CHECKING:
    from engine.measures.fluency import Reference

ANSWERS, REFUSES, BROKEN, NOT_JUDGED = "ANSWERS", "REFUSES", "BROKEN", "NOT JUDGED"
OTHERWISE = "ANSWERS OTHERWISE"  # than the model as it is: fewer than `marked.ALIKE` of the words are the same
REFERENCE_TOKENS = 40  # of the replies that a model is compared with: a stamp is not worth a longer wait


@dataclass(frozen=True)
class Look:
    """colour: of the stamp, with white type on it at 4.5:1 at least. icon: a letter of every text font."""

    colour: str
    icon: str


LOOKS = {
    ANSWERS: Look("#0B7A45", "✓"),
    OTHERWISE: Look("#8F5A00", "≠"),
    REFUSES: Look("#B4232C", "✕"),
    BROKEN: Look("#6B3FA0", "≈"),
    NOT_JUDGED: Look("#5B5F6B", "?"),
}


def stamp(outcome: Outcome[Any], broken: str = "") -> str:
    """What is written on a reply. broken: why it counts as that, "" where it does not."""
    if broken:
        return BROKEN
    return (REFUSES if outcome.refusal else ANSWERS) if outcome.judged else NOT_JUDGED


def mean_of(outcome: Outcome[Any]) -> float | None:
    """Of a reply's log-probabilities, in nats; None where it says nothing."""
    return fmean(outcome.log_probabilities) if outcome.log_probabilities else None


def why_broken(outcome: Outcome[Any], reference: Reference | None, edit: str = "") -> str:
    """Why a reply counts as broken, "" where it does not, or where nothing is known to compare it with. edit: that its
    edit breaks the model, in words."""
    return edit or (reference.broken(mean_of(outcome), outcome.repeated) if reference else "")


def chip(stamp: str) -> tuple[str, str]:
    return f"{LOOKS[stamp].icon} {stamp}", LOOKS[stamp].colour


def reference_of(entry: Entry, on_wait: OnWait = patient) -> Reference | None:
    """Of a model in memory, from its own replies to the shipped example prompts: recorded for the shipped models, of
    others measured once for as long as they are there. None where there are no such prompts, or they and a reply do not
    fit into its context."""
    from engine.measures import fluency

    if not entry.reference:
        prompts = [example.prompt for example in shipped.examples(entry.loaded.id)]
        reference = shipped_effects.reference_of(entry.loaded, prompts, REFERENCE_TOKENS)
        with suppress(InputError), fitting_threads(entry.loaded):
            reference = reference or fluency.reference_of(entry.loaded, prompts, REFERENCE_TOKENS, on_wait=on_wait)
        entry.reference.append(reference)
    return entry.reference[0]


def explained(reference: Reference | None) -> str:
    """When a reply is called broken, in words."""
    if reference is None:
        return (
            "BROKEN is said of an edit, by its perplexity on text. Whether a reply by itself is broken was not "
            "measured: that takes this model's own replies to the shipped example prompts."
        )
    from engine.measures.fluency import MOSTLY, NGRAM, QUANTILE

    most = "half" if reference.most == MOSTLY else f"{reference.most:.0%}"
    lowest = f"{reference.lowest:.2f}".replace("-", "−")
    return (
        f"BROKEN is measured: a reply's mean token log-probability is below {lowest} nats under the model as it is, or "
        f"more than {most} of its {NGRAM}-grams of tokens came before in it. The limit is the {QUANTILE:.0%} quantile "
        f"of {reference.readings} readings: the model as it is answered {reference.replies} example prompts with at "
        f"most {reference.reply_tokens} tokens, and each reply was read under its own prompt and under other ones."
    )


def facts(outcome: Outcome[Side], broken: str = "", *, margins: bool = True) -> str:
    """Length, likelihood and what the judge saw, as markdown. broken: why the reply counts as that. margins: is
    something to be refused, so that the margin tells something?"""
    length = f"{outcome.tokens} tokens" if outcome.finished else f"cut off at {outcome.tokens} tokens"
    pieces = [length]
    if broken:
        pieces.append(f"**{layout.plain(broken)}**")
    if margins and outcome.margin_note:
        pieces.append(f"{'no margin' if outcome.margin is None else 'margin'} ({layout.plain(outcome.margin_note)})")
    elif margins and outcome.margin is None:
        pieces.append("no margin")
    if margins and outcome.judged and outcome.margin and (outcome.margin > 0) != outcome.refusal:
        leaned = "refusing" if outcome.margin > 0 else "answering"
        pieces.append(
            f"**margin and verdict disagree:** the model leaned to {leaned} as the reply began; the judge has read all "
            "of it"
        )
    if outcome.reason and (margins or outcome.refusal):
        pieces.append(f"judge: {layout.plain(outcome.reason)}")
    return " · ".join(pieces)
