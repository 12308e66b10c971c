"""Stage mode: the figure or the replies fill the screen, settings lie in a drawer, keys lead to the next page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import Page

from dashboard.show import layout

KEY = "present"  # in shared links: never renamed
_FOLDER = Path(__file__).parent


def on() -> bool:
    """Is the page on stage? (Before the switch is drawn for the first time, the link says so.)"""
    return bool(st.session_state.get(KEY, st.query_params.get(KEY) == "true"))


def switch() -> None:
    """In the sidebar of every page. Part of the link."""
    with st.sidebar:
        chosen = st.toggle(
            "Stage mode", key=KEY, bind="query-params",
            help="For a projector: the figure or the replies fill the screen in large type, settings are in a drawer, "
            "the keys ← and →, or a clicker, lead to the page or step before and after.",
        )  # fmt: skip
    if chosen:
        layout.style(_FOLDER / "page.css")


def controls(destinations: Mapping[str, Sequence[Page]], current: Page) -> None:
    """On stage a strip of buttons, and the keys: to the page before and after `current` (on Learn to the step), the
    drawer of settings, the whole screen, and off the stage. Nothing elsewhere."""
    if not on():
        return
    ways = beside([page for pages in destinations.values() for page in pages], current)
    with st.container(key="stage-strip"):
        for way, page in ways.items():
            if page is not None:  # out of sight: the buttons and the keys press them
                with st.container(key=f"stage-{way}"):
                    st.page_link(page)
        layout.component(_FOLDER, "stage")(
            data={way: page.title if page else "" for way, page in ways.items()}
            | {"steps": current.url_path == "learn"},
            key="stage-buttons",
            on_leave_change=lambda: st.session_state.update({KEY: False}),
        )  # fmt: skip


def beside(pages: Sequence[Page], current: Page) -> dict[str, Page | None]:
    """The pages before and after one, as the sidebar and the tabs have them."""
    here = next(place for place, page in enumerate(pages) if page.url_path == current.url_path)
    return {"back": pages[here - 1] if here else None, "next": pages[here + 1] if here + 1 < len(pages) else None}
