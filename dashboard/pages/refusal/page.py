"""Refusal: what removing few rows does to the replies, with controls, the replies themselves, and their judges."""

import streamlit as st

from dashboard.pages.refusal import across_models, baselines, composed_masks, edit_grid, judging, replies, structure
from dashboard.show import layout, selection
from dashboard.state import parts
from dashboard.state.parts import Drawn, Part
from dashboard.state.tabs import tabs_of

JUDGES, KEY = "Judges", "section"
PARTS = {
    "Edits": edit_grid.PART,
    "Replies": replies.PART,
    JUDGES: Part(lambda _: Drawn(None), ()),  # picks replies by itself
    "Where the rows are": structure.PART,
    "Two domains in one mask": composed_masks.PART,
    "Other methods": baselines.PART,
    "Across models": across_models.PART,
}
_FOLDED = ("Operating points", "Perplexity against k")  # former parts, which the fold of Edits has


def render() -> None:
    if st.query_params.get(KEY) in _FOLDED:
        st.session_state[selection.MORE] = True
    if (former := st.query_params.get("show", "")) in edit_grid.FORMER:
        st.session_state["show"] = edit_grid.FORMER[former]
    plug_ins = {title: Part(show, edit_grid.PART.stems) for title, show in tabs_of("refusal").items()}
    every = PARTS | plug_ins
    stage = layout.heading("Refusal", "Which few rows, zeroed, make the model refuse?")
    bar = layout.bar(stage)
    name = parts.choose(bar, tuple(every), KEY)
    if name == JUDGES:
        judging.draw(stage, bar)
    else:
        parts.draw(stage, bar, name, every[name])
