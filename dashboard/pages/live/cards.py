"""Before, After and Control as cards side by side: a stamp, the reply, a needle for the margin, and the facts."""

import html
from collections.abc import Callable, Generator, MutableMapping, Sequence
from contextlib import closing

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import marked, stamps
from dashboard.chat.live import Event, Outcome, Side, keep
from dashboard.chat.marked import Span
from dashboard.chat.tries import TITLES
from dashboard.show import layout
from engine.data.thinking import parts
from engine.records.locks import OnWait

SUBTITLES: dict[Side, str] = {"before": "as it is", "after": "rows zeroed", "control": "random rows"}
LEAST_SCALE = 2.0  # the needle's scale reaches so far on both sides at least, in nats


class Cards:
    """One card per side. key: begins the names of the cards. model: what each says that it is of. margins: is the
    margin drawn? Where nothing is to be refused, its zero says little beside the stamp of the whole reply. waits: what
    an empty card of an edited model waits for."""

    def __init__(self, sides: Sequence[Side], key: str, model: str, *, margins: bool = True, waits: str = "") -> None:
        self.sides, self._model, self._broken, self._margins = tuple(sides), model, "", margins
        self._heads, self.texts, self._needles, self.facts = (dict[Side, DeltaGenerator]() for _ in range(4))
        for side, column in zip(self.sides, st.columns(len(self.sides)), strict=True):
            with column, st.container(border=True, key=f"{key}-{side}", height="stretch"):
                for places in (self._heads, self.texts, self._needles, self.facts):
                    places[side] = st.empty()
            self._head(side)
            self.write(side, "")
            if waits and side != "before":
                self.facts[side].caption(waits)

    def write(self, side: Side, text: str) -> None:
        """The text so far of one side, nothing marked."""
        if side in self.texts:
            _reply(self.texts[side], text)
            if text:
                self.facts[side].empty()  # of what it waited for

    def tell(self, outcome: Outcome[Side]) -> None:
        """The verdict and the margin of a reply that has ended; `finish` says the rest once all have."""
        if outcome.side in self.facts:
            broken = self._broken if outcome.side == "after" else ""
            self._head(outcome.side, stamps.stamp(outcome, broken))
            self._needle(outcome, max(LEAST_SCALE, abs(outcome.margin or 0.0)))

    def call_broken(self, why: str) -> None:
        """That the edit breaks the model, on the card of After before its reply is there."""
        self._broken = why
        if why:
            self._head("after", stamps.BROKEN)

    def follow(
        self,
        replies: Callable[[OnWait], Generator[Event, None, None]],
        status: DeltaGenerator,
        texts: MutableMapping[Side, str],
        outcomes: MutableMapping[Side, Outcome[Side]],
    ) -> None:
        """Show replies as they come and keep them in `texts` and `outcomes`, so that stopped ones are still there.
        replies: given what to do while another session keeps the model, the events. Whatever ends this script run
        at its next output ends the replies too."""
        status.caption("Writing …")
        with closing(replies(layout.queued_in(status))) as events:
            for event in events:
                status.caption("Writing …")  # in the place of what waiting said
                keep(event, texts, outcomes)
                if isinstance(event, Outcome):
                    self.tell(event)
                else:
                    self.write(event.side, texts[event.side])

    def finish(self, outcome: Outcome[Side], *, stamp: str, broken: str, spans: Sequence[Span], scale: float) -> None:
        """A reply with all that is known of it. broken: why it counts as that, "" where it does not. scale: of the
        needle, the same for all sides."""
        side = outcome.side
        self._head(side, stamp)
        cut = "" if outcome.finished else f"(not finished: {outcome.tokens} tokens)"
        _reply(self.texts[side], outcome.text, spans, cut)
        self._needle(outcome, scale)
        self.facts[side].caption(stamps.facts(outcome, broken, margins=self._margins))

    def _head(self, side: Side, stamp: str = "") -> None:
        look = stamps.LOOKS.get(stamp)
        word = f'<span class="sa-stamp" style="background:{look.colour}">{look.icon} {stamp}</span>' if look else ""
        self._heads[side].html(
            f'<div class="sa-head"><div role="heading" aria-level="2"><b>{TITLES[side]}</b> '
            f'<span class="sa-small">{SUBTITLES[side]} · {html.escape(self._model)}</span></div>{word}</div>'
        )

    def _needle(self, outcome: Outcome[Side], scale: float) -> None:
        if self._margins and outcome.margin is not None:
            self._needles[outcome.side].html(needle(outcome.margin, scale))


def needle(margin: float, scale: float) -> str:
    """A scale from -`scale` to +`scale` with a hand at the margin, and its number in words below."""
    percent = 50 + 50 * max(-1.0, min(1.0, margin / scale))
    number = f"{margin:+.2f}".replace("-", "−")
    alt = f"margin {number} on a scale from −{scale:.1f}, answers, to +{scale:.1f}, refuses"
    return (
        f'<div class="sa-needle" role="img" aria-label="{alt}"><span class="sa-zero"></span>'
        f'<span class="sa-hand" style="left:{percent:.1f}%"></span></div>'
        f'<div class="sa-ends"><span>begins to answer</span><b>margin {number}</b><span>begins to refuse</span></div>'
    )


def _reply(place: DeltaGenerator, text: str, spans: Sequence[Span] = (), cut: str = "") -> None:
    """Shown letter by letter, whatever it holds; its thinking part folded apart."""
    reply_parts = parts(text)
    reply, offset = text, 0
    if reply_parts.said != text:
        reply = reply_parts.said or (layout.NOTHING if reply_parts.complete else layout.STILL_THINKING)
        offset = text.rindex(reply_parts.said) if reply_parts.said else len(text)
    end = f'<span class="sa-small"> {cut}</span>' if cut else ""
    body = f'<div class="sa-reply">{marked.as_html(reply, marked.moved(spans, offset))}{end}</div>'
    if not reply_parts.thinking:
        place.html(body)
        return
    with place.container():
        with st.expander(layout.FOLDED):
            st.text(reply_parts.thinking, width="stretch")
        st.html(body)
