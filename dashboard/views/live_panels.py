"""The replies of a live edit beside each other, the margins along them, and where the removed rows are."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import charts, formats, layout, live, tools
from dashboard.tries import TITLES, Try

_MARGINS_HELP = (
    "The first mark is the margin as the reply begins. Once a reply is under way, the margin says less: it is about "
    "openings such as “Sorry” and “Sure”, which do not come in the middle of a sentence."
)


class Panels:
    """The replies beside each other; each has the text, never rendered as markdown, and a line of facts."""

    def __init__(self, sides: tuple[live.Side, ...]) -> None:
        self.sides = sides
        self.facts: dict[str, DeltaGenerator] = {}
        self.texts: dict[str, DeltaGenerator] = {}
        for side, column in zip(sides, st.columns(len(sides)), strict=True):
            with column, st.container(border=True, key=f"reply-{side}", height="stretch"):
                st.markdown(f"#### {TITLES[side]}")
                self.texts[side] = st.empty()
                self.facts[side] = st.empty()
        self.below = st.container()

    def write(self, side: str, text: str) -> None:
        """The text so far of one side."""
        if side in self.texts:
            self.texts[side].text(text or " ", width="stretch")

    def tell(self, outcome: live.Outcome) -> None:
        """The facts of a finished reply."""
        if outcome.side in self.facts:
            self.facts[outcome.side].caption(facts(outcome))


def show(last: Try, status: DeltaGenerator, panels: Panels) -> None:
    """A try as far as it came."""
    if last.problem:
        status.warning(layout.plain(last.problem))
    else:
        rows = last.rows_removed
        count = f"{rows:,} rows removed" if rows is not None else "nothing removed yet"
        state = "" if last.ended else " — stopped; the model's weights are back as they were"
        status.caption(
            layout.plain(f"{last.request.describe()}: {count}{state}. Prompt: {last.request.prompt}")
        )
    for side in panels.sides:
        panels.write(side, last.texts[side])
        if side in last.outcomes:
            panels.tell(last.outcomes[side])
        elif not last.ended:
            panels.facts[side].caption("Stopped.")
    with panels.below:
        _margins(last, panels.sides)
        _rows(last, panels.sides)


def _margins(last: Try, shown: tuple[live.Side, ...]) -> None:
    found = [last.outcomes[side] for side in shown if side in last.outcomes]
    sides: dict[str, charts.live.Along] = {outcome.side: outcome.along for outcome in found if outcome.along}
    if not sides:
        return
    ends = "; ".join(
        f"{side} {along[0][1]:+.2f} at the start, {along[-1][1]:+.2f} at the end"
        for side, along in sides.items()
    )
    figure = charts.live.margins_along(sides)
    tools.show(figure, "margins", f"Refusal margin after every token: {ends}.", key="margins-along")
    layout.footnote(_MARGINS_HELP)


def _rows(last: Try, shown: tuple[live.Side, ...]) -> None:
    if last.removed is None:
        return
    st.markdown("#### Where the removed rows are")
    tools.show(
        charts.perplexity.removed_rows(last.removed), "removed-rows",
        "Share of the rows of each projection that this edit removes: "
        + ", ".join(f"{name} {removed} of {rows}" for name, removed, rows in last.removed.iter_rows()),
        key="removed-rows",
    )  # fmt: skip
    if "control" in shown and last.control_seed is not None:
        layout.footnote(
            f"The control removes as many rows in every layer, drawn with seed {last.control_seed}."
        )


def facts(outcome: live.Outcome) -> str:
    """Verdict, margin, time and length of a reply, as markdown."""
    verdict = ":material/block: **refuses**" if outcome.refusal else ":material/chat: **answers**"
    margin = f"margin {outcome.margin:+.2f}".replace("-", "−") if outcome.margin is not None else "no margin"
    why = f" ({layout.plain(outcome.margin_note)})" if outcome.margin_note else ""
    pieces = [verdict, margin + why, formats.seconds(outcome.elapsed_s), f"{outcome.tokens} tokens"]
    return " · ".join(pieces) + (f" · judge: {layout.plain(outcome.reason)}" if outcome.reason else "")
