"""The sidebar's menu of pages, and where the app departs from Streamlit's own look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st
from streamlit.navigation.page import Page

# Streamlit's captions are too faint for small type, white on the dark theme's buttons is hard to read, and the space
# between menu entries is too wide for this many.
_STYLE = (
    "<style>[data-testid=stCaptionContainer]{color:inherit;opacity:.85}"
    "[data-testid=stBaseButton-primary]:not(:disabled) p{color:light-dark(#fff,#0e1117)}"
    "[data-testid=stSidebarUserContent] [data-testid=stVerticalBlock]{gap:.3rem}</style>"
)


def show(pages: Mapping[str, Sequence[Page]]) -> None:
    """The pages by group. (Streamlit's own menu with groups is no valid list for screen readers.)"""
    st.html(_STYLE)
    with st.sidebar:
        for group, members in pages.items():
            st.markdown(f"**{group}**")
            for member in members:
                st.page_link(member)
