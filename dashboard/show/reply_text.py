"""A reply as plain text, its thinking part folded apart: never rendered as markdown, whatever it holds."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.data.thinking import parts

FOLDED = "Thinking part"
STILL_THINKING, NOTHING = "(the thinking part has not ended)", "(nothing after the thinking part)"


def show(text: str, place: DeltaGenerator, *, empty: str) -> None:
    """A reply in `place`, of which only the last one shown is seen where that is `st.empty()`. empty: said for none."""
    found = parts(text)
    if found.said == text:
        place.text(text or empty, width="stretch")
        return
    with place.container():
        if found.thinking:
            with st.expander(FOLDED):
                st.text(found.thinking, width="stretch")
        st.text(found.said or (NOTHING if found.complete else STILL_THINKING), width="stretch")
