"""What the widgets of a page are left at, for who comes back to it or goes on to a page with the same setting.

Streamlit forgets a page's widgets when it is left. `selection` makes a `Setting` for each of its widgets: it starts
the widget (`start`) and notes its value, in each run (`note`) and as soon as it changes (`changed`, the widget's
`on_change`): who chooses something and leaves at once stops the run before it comes to the widget. (Two requests that
reach a busy server together are one to Streamlit, and what was chosen with the first is lost.)"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

_KEPT = "kept-between-pages"  # session state: name -> (value, page)
_HERE = "kept-on-the-page"  # session state: page -> key -> value
_WANTED = "wanted-in-the-next-run"  # session state: key -> value
_LAST = "last-page-of"  # session state: key -> the page that had a widget of this key last


def page() -> str:
    context = get_script_run_ctx()
    return context.page_script_hash if context else ""


def _by_history() -> bool:
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def forget_page() -> None:
    """This page starts anew: what comes with a link counts, not what it was left at."""
    st.session_state.get(_HERE, {}).pop(page(), None)


@dataclass
class Setting:
    """A widget's value on one page.
    key: of the widget; offered: whether it can be at a value; default: where it stands when nobody chose anything.
    shared: the name under which other pages' widgets start with what was chosen here, None = it stays on this page.
    seen: what the page makes of the widget's own value."""

    key: str
    offered: Callable[[Any], bool]
    default: Any = None
    shared: str | None = None
    seen: Callable[[Any], Any] = lambda value: value
    where: str = field(default_factory=lambda: page(), init=False)
    _wanted: Any = field(default=None, init=False)

    def start(self) -> None:
        """Starts the widget with what it was left at, unless the link says something."""
        (self._again if self.shared is None else self._take_over)()

    def note(self, value: Any) -> None:
        """Remembers a run's value.
        In the one script run that the browser's Back or Forward starts, Streamlit gives widgets what is left of the
        address instead, so that another run is needed."""
        self._share(value)
        if self._wanted is not None and value != self._wanted and _by_history():
            st.session_state.setdefault(_WANTED, {})[self.key] = self._wanted
            st.rerun()
        self._leave(value)

    def changed(self) -> None:
        """Remembers a value that has just been chosen. (Back and Forward choose nothing, see `note`.)"""
        if _by_history():
            return
        value = st.session_state.get(self.key)
        value = self.default if value is None else self.seen(value)
        self._share(value)
        self._leave(value)

    def _leave(self, value: Any) -> None:
        st.session_state.setdefault(_HERE, {}).setdefault(self.where, {})[self.key] = value
        st.session_state.setdefault(_LAST, {})[self.key] = self.where

    def _again(self) -> None:
        """For who comes back: Streamlit drops a setting from the address where the page before has a widget of the
        same key."""
        if self.key in st.session_state.get(_WANTED, {}):
            st.session_state[self.key] = st.session_state[_WANTED].pop(self.key)
            return  # nothing is wanted, so that one more run is the last one
        left = st.session_state.get(_HERE, {}).get(self.where, {})
        elsewhere = st.session_state.get(_LAST, {}).get(self.key) != self.where or self.key not in st.session_state
        if elsewhere and self.key in left and self.key not in st.query_params and self.offered(left[self.key]):
            st.session_state[self.key] = self._wanted = left[self.key]

    def _take_over(self) -> None:
        """Right after a change of page the old page's value is still in the session state, but the new widget does not
        take it over."""
        value, place = st.session_state.setdefault(_KEPT, {}).get(self.shared, (None, None))
        elsewhere = place != self.where or self.key not in st.session_state
        if elsewhere and self.key not in st.query_params and value is not None and self.offered(value):
            st.session_state[self.key] = value

    def _share(self, value: Any) -> None:
        """A default that nobody chose is no choice, and other pages have other ones.
        A page that does not offer what was chosen elsewhere does not make it forgotten."""
        if self.shared is None:
            return
        before, _ = st.session_state[_KEPT].get(self.shared, (None, None))
        if (before is not None and self.offered(before)) or value != self.default:
            st.session_state[_KEPT][self.shared] = (value, self.where)


@dataclass
class Several:
    """Any of many, all at first. Another page or source with this key starts with the same choice, as far as it has it;
    all stays all."""

    key: str
    options: Sequence[str]
    where: str = field(default_factory=lambda: page(), init=False)

    def start(self) -> None:
        wanted, place = st.session_state.setdefault(_KEPT, {}).get(self.key, (None, None))
        there = self.key in st.session_state  # else the page has just been opened
        if place is None or (there and place == self._place()):
            return
        if self.key not in st.query_params or (there and place[0] == self.where):
            st.session_state[self.key] = self._offered(wanted)

    def note(self, chosen: Sequence[str]) -> None:
        """What is wanted is None for all of them, and stays what it was as long as the widget shows it."""
        wanted, _ = st.session_state[_KEPT].get(self.key, (None, None))
        if list(chosen) != self._offered(wanted):
            wanted = None if set(chosen) == set(self.options) else list(chosen)
        st.session_state[_KEPT][self.key] = (wanted, self._place())

    def changed(self) -> None:
        if not _by_history():
            self.note(st.session_state.get(self.key) or [])

    def _place(self) -> tuple[str, tuple[str, ...]]:
        return self.where, tuple(self.options)

    def _offered(self, wanted: Sequence[str] | None) -> list[str]:
        """What of `wanted` can be chosen here; all where it is none of it."""
        return [name for name in self.options if wanted is not None and name in wanted] or list(self.options)
