"""The replies of a live edit beside each other, the margins along them, and where the removed rows are."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import curves as curve_chart, live as live_chart
from dashboard.chat import live
from dashboard.chat.side_by_side import Panels
from dashboard.chat.tries import Try
from dashboard.show import layout, tools

_MARGINS_HELP = (
    "The first mark is the margin as the reply begins. Once a reply is under way, the margin says less: it is about "
    "openings such as “Sorry” and “Sure”, which do not come in the middle of a sentence."
)


def show(last: Try, status: DeltaGenerator, panels: Panels, below: DeltaGenerator) -> None:
    """A try as far as it came."""
    if last.problem:
        status.warning(layout.plain(last.problem))
    else:
        rows = last.rows_removed
        count = f"{rows:,} rows removed" if rows is not None else "nothing removed yet"
        state = "" if last.ended else " — stopped"
        told = [f"{last.request.describe()}: {count}{state}.", last.effect, f"Prompt: {last.request.prompt}"]
        status.caption(layout.plain(" ".join(filter(None, told))))
    for side in panels.sides:
        panels.write(side, last.texts[side])
        if side in last.outcomes:
            panels.tell(last.outcomes[side])
        elif not last.ended:
            panels.facts[side].caption("Stopped.")
    with below:
        _margins(last, panels.sides)
        _rows(last, panels.sides)


def _margins(last: Try, shown: tuple[live.Side, ...]) -> None:
    found = [last.outcomes[side] for side in shown if side in last.outcomes]
    sides: dict[str, live_chart.Along] = {outcome.side: outcome.along for outcome in found if outcome.along}
    if not sides:
        return
    ends = "; ".join(
        f"{side} {along[0][1]:+.2f} at the start, {along[-1][1]:+.2f} at the end" for side, along in sides.items()
    )
    figure = live_chart.margins_along(sides)
    tools.show(figure, "margins", f"Refusal margin after every token: {ends}.", key="margins-along")
    layout.footnote(_MARGINS_HELP)


def _rows(last: Try, shown: tuple[live.Side, ...]) -> None:
    if last.removed is None:
        return
    st.markdown("#### Where the removed rows are")
    tools.show(
        curve_chart.removed_rows(last.removed), "removed-rows",
        "Share of the rows of each projection that this edit removes: "
        + ", ".join(f"{name} {removed} of {rows}" for name, removed, rows in last.removed.iter_rows()),
        key="removed-rows",
    )  # fmt: skip
    if "control" in shown and last.control_seed is not None:
        layout.footnote(f"The control removes as many rows in every layer, drawn with seed {last.control_seed}.")
