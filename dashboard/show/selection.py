"""Widgets whose state is in the URL, so that a copied link shows the same page.

Streamlit writes a bound widget's value into the address under its key, in the words the page shows, and
drops what is at its default. Keys are therefore part of shared links and are never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard.charts import formats

Option = TypeVar("Option")
_KEPT = "kept-between-pages"
_HERE = "kept-on-the-page"  # session state: page -> key -> value
_WANTED = "wanted-in-the-next-run"  # session state: key -> value
_LAST = "last-page-of"  # session state: key -> the page that had a widget of this key last


def choose(
    label: str,
    options: Sequence[Option],
    key: str,
    *,
    default: Option | None = None,
    title: Callable[[Option], str] = str,
    help_text: str | None = None,
    keep: bool = False,
    place: DeltaGenerator | None = None,
) -> Option:
    """One of many, in a list that opens. keep: other pages with the same key start with what was chosen here.

    place: where it stands, None = at the place of the call.
    """
    index = list(options).index(default) if default is not None and default in options else 0
    wanted = None
    if keep:
        _restore(key, options)
    else:
        wanted = _again(key, options.__contains__)
    _drop_foreign(key, options, options[index])
    chosen = _at(place).selectbox(
        label, options, index=index, key=key, format_func=title, bind="query-params", help=help_text
    )
    value = options[index] if chosen is None else chosen
    if keep:
        _remember(key, value, options, default=options[index])
    _left(key, value, wanted)
    return value


def _at(place: DeltaGenerator | None) -> Any:
    """Where a widget goes; streamlit itself puts it at the place of the call."""
    return place or st


def _drop_foreign(key: str, options: Sequence[Option], default: Option) -> None:
    """A value of another page or source would go on standing in the address beside the default that is shown."""
    if key in st.session_state and st.session_state[key] not in options:
        st.session_state[key] = default


def _restore(key: str, options: Sequence[Option] | None, shared: str | None = None) -> None:
    """Starts a widget with what another page's widget of this key was left at, unless the link says something.
    shared: a name under which widgets of different keys have one value; None = the key.

    Right after a change of page the old page's value is still in the session state, but the new widget does not
    take it over. options: None where any text will do.
    """
    value, page = st.session_state.setdefault(_KEPT, {}).get(shared or key, (None, None))
    elsewhere = page != _page() or key not in st.session_state
    offered = value is not None if options is None else value in options
    if elsewhere and key not in st.query_params and offered:
        st.session_state[key] = value


def _remember(
    key: str, value: Option, options: Sequence[Option] | None, default: Option, shared: str | None = None
) -> None:
    """A default that nobody chose is no choice, and other pages have other ones.

    A page that does not offer what was chosen elsewhere does not make it forgotten.
    """
    kept = st.session_state[_KEPT]
    before, _ = kept.get(shared or key, (None, None))
    offered = before is not None if options is None else before in options
    if offered or value != default:
        kept[shared or key] = (value, _page())


def _again(key: str, offered: Callable[[Any], bool]) -> Any:
    """Starts a widget with what it was left at on this page, unless the link says something; returns that.

    For who comes back: Streamlit forgets a page's widgets when it is left, and drops a setting from the address where
    the page before has a widget of the same key.
    """
    if key in st.session_state.get(_WANTED, {}):
        st.session_state[key] = st.session_state[_WANTED].pop(key)
        return None  # so that one more run is the last one
    left = st.session_state.get(_HERE, {}).get(_page(), {})
    elsewhere = st.session_state.get(_LAST, {}).get(key) != _page() or key not in st.session_state
    if elsewhere and key in left and key not in st.query_params and offered(left[key]):
        st.session_state[key] = left[key]
        return left[key]
    return None


def _left(key: str, value: Any, wanted: Any = None) -> None:
    """Remembers a widget's value. wanted: of `_again`; in the one script run that the browser's Back or Forward starts,
    Streamlit gives widgets what is left of the address instead, so that another run is needed."""
    context = get_script_run_ctx()
    if wanted is not None and value != wanted and context is not None and context.is_history_navigation:
        st.session_state.setdefault(_WANTED, {})[key] = wanted
        st.rerun()
    st.session_state.setdefault(_HERE, {}).setdefault(_page(), {})[key] = value
    st.session_state.setdefault(_LAST, {})[key] = _page()


def forget_page() -> None:
    """This page starts anew: what comes with a link counts, not what it was left at."""
    st.session_state.get(_HERE, {}).pop(_page(), None)


def page() -> str:
    """What tells this page from the others."""
    return _page()


def _page() -> str:
    context = get_script_run_ctx()
    return context.page_script_hash if context else ""


def switch(
    label: str,
    options: Sequence[Option],
    key: str,
    *,
    default: Option,
    title: Callable[[Option], str] = str,
    help_text: str | None = None,
    keep: bool = False,
    place: DeltaGenerator | None = None,
) -> Option:
    """One of few, all in sight. keep, place: as in `choose`."""
    wanted = None
    if keep:
        _restore(key, options)
    else:
        wanted = _again(key, options.__contains__)
    chosen = _at(place).segmented_control(
        label, options, default=default, key=key, format_func=title, required=True, bind="query-params",
        help=help_text, wrap=True,
    )  # fmt: skip
    value = default if chosen is None else chosen
    if keep:
        _remember(key, value, options, default)
    _left(key, value, wanted)
    return value


def ahead(key: str, options: Sequence[str], default: str) -> str:
    """What a kept widget that comes later on the page will be at: from this page, its link or the page before."""
    kept, _ = st.session_state.get(_KEPT, {}).get(key, (None, None))
    places = (st.session_state.get(key), st.query_params.get(key), kept)
    return next((str(value) for value in places if value in options), default)


def choose_several(
    label: str, options: Sequence[str], key: str, *, title: Callable[[str], str] = str, help_text: str | None = None
) -> list[str]:
    """Any of many; all at first. Another page or source with this key starts with the same choice, as far as it has it.

    All stays all, also where there are more to choose from.
    """
    _restore_several(key, options)
    chosen = st.pills(
        label, options, selection_mode="multi", default=list(options), key=key, format_func=title,
        bind="query-params", help=help_text, wrap=True,
    )  # fmt: skip
    _remember_several(key, options, chosen)
    return chosen


def _restore_several(key: str, options: Sequence[str]) -> None:
    wanted, place = st.session_state.setdefault(_KEPT, {}).get(key, (None, None))
    if place is None or place == (_page(), tuple(options)):
        return
    if place[0] == _page() or key not in st.query_params:
        st.session_state[key] = _offered(wanted, options)


def _remember_several(key: str, options: Sequence[str], chosen: Sequence[str]) -> None:
    """`wanted` is None for all of them, and stays what it was as long as the widget shows it."""
    wanted, _ = st.session_state[_KEPT].get(key, (None, None))
    if list(chosen) != _offered(wanted, options):
        wanted = None if set(chosen) == set(options) else list(chosen)
    st.session_state[_KEPT][key] = (wanted, (_page(), tuple(options)))


def _offered(wanted: Sequence[str] | None, options: Sequence[str]) -> list[str]:
    """What of `wanted` can be chosen here; all where it is none of it."""
    return [name for name in options if wanted is not None and name in wanted] or list(options)


def rate_range(label: str, rates: Sequence[float], key: str, *, title: Callable[[float], str]) -> tuple[float, float]:
    """A range between two of the measured rates."""
    if len(rates) < 2:
        return rates[0], rates[0]
    wanted = _again(key, lambda ends: all(end in rates for end in ends))
    low, high = st.select_slider(
        label, rates, value=(rates[0], rates[-1]), key=key, format_func=title, bind="query-params"
    )
    _left(key, (low, high), wanted)
    return low, high


def pick(
    label: str,
    options: Sequence[Option],
    key: str,
    *,
    default: Option,
    title: Callable[[Option], str] = str,
    help_text: str | None = None,
    place: DeltaGenerator | None = None,
    shared: str | None = None,
) -> Option:
    """One of a few ordered values. shared: widgets of this name, whatever their keys, start on the next page with what
    was chosen here."""
    wanted = None
    if shared:
        _restore(key, options, shared)
    else:
        wanted = _again(key, options.__contains__)
    value: Option = _at(place).select_slider(
        label, options, value=default, key=key, format_func=title, bind="query-params", help=help_text
    )
    if shared:
        _remember(key, value, options, default, shared)
    _left(key, value, wanted)
    return value


def rate(
    label: str, rates: Sequence[float], key: str, *, default: float, place: DeltaGenerator | None = None,
    shared: str | None = None,
) -> float:  # fmt: skip
    """One of the measured rates, the nearest to `default` at first. A single one is written, not asked. shared: as in
    `pick`."""
    nearest = min(rates, key=lambda value: abs(value - default))
    if len(rates) == 1:
        _at(place).caption(f"{label}: {formats.rate(rates[0])}")
        return rates[0]
    return pick(label, rates, key, default=nearest, title=formats.rate, place=place, shared=shared)


def toggle(label: str, key: str, *, default: bool = False, help_text: str | None = None) -> bool:
    """Yes or no."""
    wanted = _again(key, lambda _: True)
    value = st.toggle(label, default, key=key, bind="query-params", help=help_text)
    _left(key, value, wanted)
    return value


def number(label: str, least: int, most: int, key: str, *, default: int) -> int:
    """A whole number; one that another choice has put out of reach becomes the nearest that there is."""
    there = st.session_state.get(key)
    if isinstance(there, int) and not least <= there <= most:
        st.session_state[key] = min(max(there, least), most)
    wanted = _again(key, range(least, most + 1).__contains__)
    first = min(max(default, least), most)
    value = int(st.number_input(label, least, most, value=first, key=key, bind="query-params"))
    _left(key, value, wanted)
    return value


def tabs(labels: Sequence[str], key: str) -> list[Any]:
    """Tabs of which the open one alone is drawn (`open`)."""
    wanted = _again(key, labels.__contains__)
    made = st.tabs(labels, key=key, bind="query-params")
    _left(key, next((label for label, tab in zip(labels, made, strict=True) if tab.open), labels[0]), wanted)
    return list(made)


def text(
    label: str, key: str, *, default: str = "", help_text: str | None = None, placeholder: str = "", keep: bool = False
) -> str:
    """A line of text. keep: as in `choose`."""
    wanted = None
    if keep:
        _restore(key, None)
    else:
        wanted = _again(key, lambda _: True)
    value = st.text_input(label, default, key=key, bind="query-params", help=help_text, placeholder=placeholder).strip()
    if keep:
        _remember(key, value, None, default)
    _left(key, value, wanted)
    return value


def prompt(
    label: str, key: str, limit: int, *, default: str = "", height: int = 80, placeholder: str | None = None
) -> str:
    """Text of at most `limit` characters; empty, and a line that says why, where there is more.

    Streamlit's own limit ignores what is pasted beyond it without a word.
    """
    wanted = _again(key, lambda _: True)
    value = st.text_area(label, default, key=key, height=height, placeholder=placeholder, bind="query-params") or ""
    _left(key, value, wanted)
    if len(value) <= limit:
        return value
    st.warning(f"{label}: {len(value):,} characters are too many. Shorten it to {limit:,}; nothing of it is used now.")
    return ""
