"""One row in its text: the tokens at which it does most, graded."""

from __future__ import annotations

import html
from collections.abc import Generator
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard.chat import answers, marked, measure
from dashboard.chat.measure import Passage, RowInText
from dashboard.pages.rows import scored
from dashboard.pages.rows.cell import OPEN
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from dashboard.chat.answers import Say
    from dashboard.chat.live import Entry

OUTPUT, RELEVANCE = "Activation", "Relevance"
WHAT = {OUTPUT: measure.OUTPUT, RELEVANCE: "lrp"}
MEANING = {
    OUTPUT: "The row's output at each token, as it is read.",
    RELEVANCE: "LRP: above 0, what the row did at that token made the tokens behind it likelier; its mean size is the "
    "row's score on this text.",
}
_KEY = "row-in-text"


def show(found: Scored) -> tuple[int | None, str, DeltaGenerator]:
    """Which row, what of it, and the place for it. A click in the table chooses the row before."""
    layout.section("A row in its text")
    left, right, _ = st.columns([1, 1, 1])
    if not _is_row(found, st.session_state.get(OPEN)):
        st.session_state.pop(OPEN, None)
    row_id = left.number_input(
        "Row id", 0, found.n_rows - 1, None, 1, key=OPEN, bind="query-params",
        placeholder="click a row of the table above",
    )  # fmt: skip
    what = selection.switch("Graded by", tuple(WHAT), "row_graded", default=OUTPUT, place=right)
    if row_id is None:
        st.caption("Click a row of the table above, anywhere but on its checkbox, to see what it does in a text.")
    else:
        block, projection, row = scored.where(found, [int(row_id)]).select("block", "projection", "row").row(0)
        st.markdown(f"**{layout.plain(f'Row {row} of block {block} {projection}')}**")
    return (None if row_id is None else int(row_id)), what, st.container()


def _is_row(found: Scored, value: object) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value < found.n_rows)


def looked_up(found: Scored, row_id: int | None, what: str, place: DeltaGenerator) -> None:
    """The row at every token of the evaluation text: at once, or by a button where the model is not at hand."""
    if row_id is None:
        return

    def work(_about: object, entry: Entry, say: Say) -> Generator[RowInText, None, None]:
        yield measure.row_in_text(entry.loaded, row_id, WHAT[what], say)

    def shown(_about: object, one: RowInText, whole: bool) -> None:
        if whole:
            _show(one, what)

    question = answers.Question(found.load_from, found.model.get("weights_hash"), (row_id, what))
    button = "" if answers.at_hand(found.load_from) else "Look into it"
    answers.ask(_KEY, question, work, shown, place, button=button)


def _show(one: RowInText, what: str) -> None:
    largest = float(np.abs(one.values).max())
    body = "".join(_passage(passage, largest) for passage in one.passages)
    st.html(f'<div style="overflow-wrap:anywhere;line-height:1.7;white-space:pre-wrap">{body}</div>')
    st.caption(
        f"{MEANING[what]} Orange is above 0, blue below, in full at {largest:.3g}, its largest size. The passages hold "
        f"the largest ones of {measure.WINDOWS} windows of {measure.WINDOW_TOKENS} tokens, one passage per window."
    )


def _passage(passage: Passage, largest: float) -> str:
    spans = marked.shades(passage.pieces, [marked.of_value(value, largest) for value in passage.values])
    strongest = max(range(len(passage.values)), key=lambda place: abs(passage.values[place]))
    value = f"{passage.values[strongest]:+.3g}".replace("-", "−")
    text = marked.as_html("".join(passage.pieces), spans)
    return f'<p style="margin:0 0 .5rem"><code>{html.escape(value)}</code> … {text} …</p>'
