"""A try below its prompt: the cards with what is marked in them, and what was removed."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import marked, stamps
from dashboard.chat.live import Outcome, Side
from dashboard.chat.marked import Span
from dashboard.chat.tries import TITLES, Try
from dashboard.pages.live import settings as live_settings
from dashboard.pages.live.cards import LEAST_SCALE, Cards
from dashboard.show import layout, share
from dashboard.state import shipped

_SHADES = {
    live_settings.PLAIN: "",
    live_settings.LIKELY: "Shaded: tokens that the model as it is did not expect, fully at "
    f"{marked.FULL_NATS:g} nats. ",
    live_settings.LEANING: "Shaded: the margin before each token, red for refusing and green for answering. ",
}
_UNDERLINED = f"Underlined: words in which a reply and Before differ, where they share {marked.ALIKE:.0%} or more. "


def show(last: Try, status: DeltaGenerator, cards: Cards, below: DeltaGenerator, shade: str) -> None:
    """A try as far as it came. shade: what tokens are shaded by."""
    if last.problem:
        status.warning(layout.worded(last.problem))
    elif last.unlike:
        status.warning(layout.plain(last.unlike))
    _cards(last, cards, shade)
    with below:
        if not last.problem:
            _told(last, cards.sides)
        if last.outcomes:
            known = [last.outcomes[side] for side in cards.sides if side in last.outcomes]
            columns = [share.Column(TITLES[one.side], *stamps.chip(last.stamp(one)), one.text) for one in known]
            edit = f"{last.request.edit.describe()}; {shipped.title_of(last.request.model)}"
            share.offer(last.request.prompt, columns, edit)
            layout.footnote(_UNDERLINED + _SHADES[shade], stamps.explained(last.reference))


def _cards(last: Try, cards: Cards, shade: str) -> None:
    found = {side: last.outcomes[side] for side in cards.sides if side in last.outcomes}
    scale = max([LEAST_SCALE, *(abs(one.margin) for one in found.values() if one.margin is not None)])
    for side in cards.sides:
        if side in found:
            spans = [*_shaded(found[side], shade), *_changed(side, found)]
            cards.finish(found[side], broken=last.why_broken(found[side]), spans=spans, scale=scale)
            continue
        cards.write(side, last.texts[side])
        if not last.ended:
            cards.facts[side].caption("Stopped.")


def _shaded(outcome: Outcome[Side], shade: str) -> list[Span]:
    if shade == live_settings.LIKELY:
        return marked.shades(outcome.pieces, [marked.of_log_probability(one) for one in outcome.log_probabilities])
    if shade == live_settings.LEANING:
        margins = [margin for _, margin in outcome.along]
        largest = max(map(abs, margins), default=0.0)
        return marked.shades(outcome.pieces, [marked.of_margin(one, largest) for one in margins])
    return []


def _changed(side: Side, found: dict[Side, Outcome[Side]]) -> list[Span]:
    """What differs from Before; of Before, what differs from After. Nothing where most of it does."""
    other = found.get("after" if side == "before" else "before")
    if other is None or not marked.alike(found[side].text, other.text):
        return []
    return marked.changes(found[side].text, other.text)


def _told(last: Try, shown: tuple[Side, ...]) -> None:
    count = "nothing removed yet" if last.rows_removed is None else f"{last.rows_removed:,} rows removed"
    state = "" if last.ended else " — stopped"
    control = f"Control: as many in every layer, seed {last.control_seed}." if "control" in shown else ""
    told = [f"{last.request.edit.describe()}: {count}{state}.", last.effect, control, f"Prompt: {last.request.prompt}"]
    st.caption(layout.plain(" ".join(filter(None, told))))
