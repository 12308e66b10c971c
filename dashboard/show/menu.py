"""The menu: six destinations in the sidebar, the pages of one above each other page; where the app departs from
Streamlit's own look."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import streamlit as st
from streamlit.navigation.page import Page

from dashboard.charts import palette

_PAGES = "menu-pages"  # session state: the pages of this run by their path
_HERE = "menu-here"  # session state: the path of the page that is open
_LAST = "menu-last-pages"  # session state: destination -> path of its page that was open last
# Streamlit's captions are too faint for small type, white on the dark theme's buttons is hard to read. Streamlit
# writes ticks and titles of axes in a grey of 3.7:1 on white; notes in the grey of reference lines have 3.9:1.
_AXIS_TEXT = (
    ".js-plotly-plot [class$=tick] text,.js-plotly-plot [class^=g-][class$=title] text,.js-plotly-plot .colorbar text,"
    '.js-plotly-plot text[style*="fill: rgb({}, {}, {})"]'.format(*bytes.fromhex(palette.REFERENCE[1:]))
)
STYLE = (
    "<style>[data-testid=stCaptionContainer]{color:inherit;opacity:.85}"
    ".katex-display{padding:.5rem .2rem}"  # else what stands out by a few pixels makes it a region to scroll
    f"{_AXIS_TEXT}{{fill:light-dark({palette.TEXT_ON_LIGHT},{palette.TEXT_ON_DARK})!important}}"
    "[data-testid^=stBaseButton-primary]:not(:disabled) p{color:light-dark(#fff,#0e1117)}"
    f"{Path(__file__).with_name('frame.css').read_text(encoding='utf-8')}</style>"
)
SCRIPT = f"<script>{Path(__file__).with_name('menu.js').read_text(encoding='utf-8')}</script>"


def show(destinations: Mapping[str, Sequence[Page]], current: Page) -> None:
    """The destinations in the sidebar, each leading to its page that was open last, and above the current page those
    of its destination. (Streamlit's own menu with groups is no valid list for screen readers.)"""
    st.html(STYLE)
    st.html(SCRIPT, unsafe_allow_javascript=True)
    by_path = {page.url_path: page for pages in destinations.values() for page in pages}
    st.session_state[_PAGES] = by_path
    last: dict[str, str] = st.session_state.setdefault(_LAST, {})
    here = next(name for name, pages in destinations.items() if current.url_path in {page.url_path for page in pages})
    last[here] = st.session_state[_HERE] = current.url_path
    with st.sidebar:
        for name, pages in destinations.items():
            st.page_link(by_path[last.get(name, pages[0].url_path)], label=name)
    with st.container(horizontal=True, gap="xxsmall", key="destination"):
        for page in destinations[here]:
            st.page_link(page, width="content")


def here() -> str:
    """The path of the page that is open; that of the first where no menu was drawn."""
    return str(st.session_state.get(_HERE, ""))


def link(
    label: str, path: str, parameters: Mapping[str, str | Sequence[str]], icon: str | None = None, *,
    help_text: str | None = None, width: int | Literal["content", "stretch"] = "content",
) -> bool:  # fmt: skip
    """A link to another page with settings of it, in the same tab and session. Nothing where there is no such page;
    returns whether there is one."""
    page = st.session_state.get(_PAGES, {}).get(path)
    if page is not None:
        st.page_link(page, label=label, icon=icon, query_params=dict(parameters), help=help_text, width=width)
    return page is not None
