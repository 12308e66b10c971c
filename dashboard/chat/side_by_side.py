"""Replies beside each other while they are written: the text, never rendered as markdown, and a line of facts."""

from __future__ import annotations

from collections.abc import Generator, Mapping, MutableMapping
from contextlib import closing
from typing import TYPE_CHECKING

import streamlit as st

from dashboard.charts import formats
from dashboard.chat.live import Event, Outcome, Piece, Side
from dashboard.show import layout, reply_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamlit.delta_generator import DeltaGenerator

    from engine.records.locks import OnWait


class Panels:
    """One column per side. titles: of the sides. key: begins the names of the columns."""

    def __init__(self, titles: Mapping[Side, str], key: str) -> None:
        self.sides = tuple(titles)
        self.facts: dict[Side, DeltaGenerator] = {}
        self.texts: dict[Side, DeltaGenerator] = {}
        for (side, title), column in zip(titles.items(), st.columns(len(titles)), strict=True):
            with column, st.container(border=True, key=f"{key}-{side}", height="stretch"):
                st.markdown(f"#### {title}")
                self.texts[side] = st.empty()
                self.facts[side] = st.empty()

    def write(self, side: Side, text: str) -> None:
        """The text so far of one side."""
        if side in self.texts:
            reply_text.show(text, self.texts[side], empty=" ")

    def tell(self, outcome: Outcome[Side]) -> None:
        """The facts of a reply that has ended."""
        if outcome.side in self.facts:
            self.facts[outcome.side].caption(facts(outcome))

    def follow(
        self,
        replies: Callable[[OnWait], Generator[Event, None, None]],
        status: DeltaGenerator,
        texts: MutableMapping[Side, str],
        outcomes: MutableMapping[Side, Outcome[Side]],
    ) -> None:
        """Show replies as they come and keep them in `texts` and `outcomes`, so that stopped ones are still there.

        replies: given what to do while another session keeps the model, the events. Whatever ends this script run
        at its next output ends the replies too.
        """
        waited = []

        def waiting(seconds: float) -> None:
            waited.append(seconds)
            layout.queued_in(status)(seconds)

        status.caption("Writing …")
        with closing(replies(waiting)) as events:
            for event in events:
                if waited:
                    waited.clear()
                    status.caption("Writing …")
                if isinstance(event, Piece):
                    texts[event.side] += event.text
                    self.write(event.side, texts[event.side])
                else:
                    outcomes[event.side] = event
                    self.tell(event)


def facts(outcome: Outcome[Side]) -> str:
    """Verdict, margin, time and length of a reply, as markdown."""
    verdict = layout.verdict(outcome.refusal, outcome.judged)
    margin = f"margin {outcome.margin:+.2f}".replace("-", "−") if outcome.margin is not None else "no margin"
    why = f" ({layout.plain(outcome.margin_note)})" if outcome.margin_note else ""
    length = f"{outcome.tokens} tokens" if outcome.finished else f"cut off at {outcome.tokens} tokens"
    pieces = [verdict, margin + why, formats.seconds(outcome.elapsed_s), length]
    if contradicts(outcome):
        leaned = "refusing" if outcome.margin and outcome.margin > 0 else "answering"
        pieces.append(
            f"**margin and verdict disagree:** the model leaned to {leaned} as the reply began; the judge has read all "
            "of it"
        )
    return " · ".join(pieces) + (f" · judge: {layout.plain(outcome.reason)}" if outcome.reason else "")


def contradicts(outcome: Outcome[Side]) -> bool:
    """Does the margin lean to the other side than the judge's verdict on the whole reply?"""
    return bool(outcome.judged and outcome.margin) and (outcome.margin > 0) != outcome.refusal  # type: ignore[operator]
