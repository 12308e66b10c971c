"""Widgets whose state is in the URL, so that a copied link shows the same page.

Streamlit writes a bound widget's value into the address under its key, in the words the page shows, and
drops what is at its default. Keys are therefore part of shared links and are never renamed.

Streamlit forgets a page's widgets when it is left. Each starts with what it was left at, for who comes back to the page
or goes on to one with the same setting: a `Setting` starts it (`start`) and notes its value, in each run (`note`) and
as soon as it changes (`changed`, the widget's `on_change`): who chooses something and leaves at once stops the run
before it comes to the widget. (Two requests that reach a busy server together are one to Streamlit, and what was chosen
with the first is lost.)"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard.charts import formats, palette
from dashboard.show import layout

Option = TypeVar("Option")
_KEPT = "kept-between-pages"  # session state: name -> (value, page)
_HERE = "kept-on-the-page"  # session state: page -> key -> value
_WANTED = "wanted-in-the-next-run"  # session state: key -> value
_LAST = "last-page-of"  # session state: key -> the page that had a widget of this key last
MORE = "more"  # of the fold; in shared links


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
        known = self.key in st.session_state  # else the page has just been opened
        if place is None or (known and place == self._place()):
            return
        if self.key not in st.query_params or (known and place[0] == self.where):
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


def _kept(setting: Setting, widget: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """A widget that starts with what it was left at, with the value that it is at; its default where it is at none."""
    setting.start()
    value = widget(*given, **{"key": setting.key, "bind": "query-params", "on_change": setting.changed} | options)
    value = setting.default if value is None else setting.seen(value)
    setting.note(value)
    return value


def choose(
    label: str, options: Sequence[Option], key: str, *, default: Option | None = None,
    title: Callable[[Option], str] = str, help_text: str | None = None, keep: bool = False,
    place: DeltaGenerator | None = None,
) -> Option:  # fmt: skip
    """One of many, in a list that opens. keep: other pages with the same key start with what was chosen here.
    place: where it stands, None = at the place of the call."""
    index = list(options).index(default) if default is not None and default in options else 0
    setting = Setting(key, options.__contains__, options[index], shared=key if keep else None)
    setting.start()  # before what it may have dropped
    if key in st.session_state and st.session_state[key] not in options:
        st.session_state[key] = options[index]  # one of another page or source would go on standing in the address
    return _kept(setting, (place or st).selectbox, label, options, index=index, format_func=title, help=help_text)


def choose_domain(
    table: pl.DataFrame, key: str, label: str = "Domain", *, keep: bool = False, place: DeltaGenerator | None = None
) -> str:
    domains = table["domain"].unique(maintain_order=True).to_list()
    return choose(label, domains, key, title=palette.capital, keep=keep, place=place)


def choose_selector(
    table: pl.DataFrame, key: str, *, default: str | None = None, keep: bool = False,
    place: DeltaGenerator | None = None,
) -> str:  # fmt: skip
    known = palette.in_order(table["selector"])
    return choose("Selector", known, key, default=default, title=palette.title, keep=keep, place=place)


def switch(
    label: str, options: Sequence[Option], key: str, *, default: Option, title: Callable[[Option], str] = str,
    help_text: str | None = None, place: DeltaGenerator | None = None,
) -> Option:  # fmt: skip
    """One of few, all in sight. place: as in `choose`."""
    setting = Setting(key, options.__contains__, default)
    return _kept(
        setting, (place or st).segmented_control, label, options, default=default, format_func=title, required=True,
        help=help_text, wrap=True,
    )  # fmt: skip


def choose_several(label: str, options: Sequence[str], key: str, *, title: Callable[[str], str] = str) -> list[str]:
    """Any of many; all at first. Another page or source with this key starts with the same choice, as far as it has it.
    All stays all, also where there are more to choose from."""
    several = Several(key, options)
    several.start()
    chosen = st.pills(
        label, options, selection_mode="multi", default=list(options), key=key, format_func=title,
        bind="query-params", wrap=True, on_change=several.changed,
    )  # fmt: skip
    several.note(chosen)
    return chosen


def rate_range(label: str, rates: Sequence[float], key: str, *, title: Callable[[float], str]) -> tuple[float, float]:
    """A range between two of the measured rates."""
    if len(rates) < 2:
        return rates[0], rates[0]
    ends = (rates[0], rates[-1])
    setting = Setting(key, lambda chosen: all(end in rates for end in chosen), ends)
    low, high = _kept(setting, st.select_slider, label, rates, value=ends, format_func=title)
    return low, high


def pick(
    label: str, options: Sequence[Option], key: str, *, default: Option, title: Callable[[Option], str] = str,
    help_text: str | None = None, place: DeltaGenerator | None = None, shared: str | None = None,
) -> Option:  # fmt: skip
    """One of a few ordered values. shared: widgets of this name, whatever their keys, start on the next page with what
    was chosen here."""
    setting = Setting(key, options.__contains__, default, shared)
    return _kept(setting, (place or st).select_slider, label, options, value=default, format_func=title, help=help_text)


def rate(
    rates: Iterable[float], key: str, *, place: DeltaGenerator | None = None, shared: str | None = "rate"
) -> float:
    """One of the measured rates at which rows are removed, the nearest to 30% at first. A single one is written, not
    asked. shared: as in `pick`."""
    label, known = "Rows removed", sorted(set(rates))
    nearest = min(known, key=lambda value: abs(value - 0.3))
    if len(known) == 1:
        (place or st).caption(f"{label}: {formats.rate(nearest)}")
        return nearest
    return pick(label, known, key, default=nearest, title=formats.rate, place=place, shared=shared)


def toggle(label: str, key: str, *, default: bool = False, help_text: str | None = None) -> bool:
    return bool(_kept(Setting(key, lambda _: True, default), st.toggle, label, default, help=help_text))


def number(label: str, least: int, most: int, key: str, *, default: int) -> int:
    """A whole number; one that another choice has put out of reach becomes the nearest that there is."""
    current = st.session_state.get(key)
    if isinstance(current, int) and not least <= current <= most:
        st.session_state[key] = min(max(current, least), most)
    first = min(max(default, least), most)
    setting = Setting(key, range(least, most + 1).__contains__, first, seen=int)
    return int(_kept(setting, st.number_input, label, least, most, value=first))


def tabs(labels: Sequence[str], key: str) -> list[Any]:
    """Tabs of which the open one alone is drawn (`open`)."""
    setting = Setting(key, labels.__contains__, labels[0])
    setting.start()
    drawn = st.tabs(labels, key=key, bind="query-params", on_change=setting.changed)
    setting.note(next((label for label, tab in zip(labels, drawn, strict=True) if tab.open), labels[0]))
    return list(drawn)


def page_of(table: pl.DataFrame, rows: int, key: str, of: object = None) -> tuple[int, pl.DataFrame]:
    """A page of a long table, with the number of its first row. Another one (`of`) starts at page 1 again, a link keeps
    its page."""
    pages = -(-table.height // rows)
    before = st.session_state.get(f"{key}-of")
    st.session_state[f"{key}-of"] = of
    if before not in (None, of) or not 1 <= st.session_state.get(key, 1) <= pages:
        st.session_state[key] = 1
    start = (st.pagination(pages, key=key, bind="query-params") - 1) * rows
    return start, table.slice(start, rows)


def folded(draw: Callable[[], object], label: str = "More", key: str = MORE) -> None:
    """What is asked for less often, folded below the page's first figures, and drawn when it is unfolded."""
    fold = st.expander(label, key=key, on_change="rerun", bind="query-params")
    if fold.open:
        with fold, layout.told():
            draw()


def text(
    label: str, key: str, *, default: str = "", help_text: str | None = None, placeholder: str = "", keep: bool = False,
    in_form: bool = False,
) -> str:  # fmt: skip
    """A line of text. keep: as in `choose`. in_form: it counts with the form's button, before which Streamlit says
    nothing of it."""
    setting = Setting(key, lambda _: True, default, shared=key if keep else None, seen=str.strip)
    more = {"on_change": None} if in_form else {}
    return _kept(setting, st.text_input, label, default, help=help_text, placeholder=placeholder, **more)


def prompt(label: str, key: str, limit: int, *, height: int = 80, placeholder: str | None = None) -> str:
    """Text of at most `limit` characters; empty, and a line that says why, where there is more.
    Streamlit's own limit ignores what is pasted beyond it without a word."""
    setting = Setting(key, lambda _: True, "")
    value = str(_kept(setting, st.text_area, label, "", height=height, placeholder=placeholder))
    if len(value) <= limit:
        return value
    st.warning(f"{label}: {len(value):,} characters are too many. Shorten it to {limit:,}; nothing of it is used now.")
    return ""
