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
    if keep:
        _restore(key, options)
    _drop_foreign(key, options, options[index])
    chosen = _at(place).selectbox(
        label, options, index=index, key=key, format_func=title, bind="query-params", help=help_text
    )
    value = options[index] if chosen is None else chosen
    if keep:
        _remember(key, value, options, default=options[index])
    return value


def _at(place: DeltaGenerator | None) -> Any:
    """Where a widget goes; streamlit itself puts it at the place of the call."""
    return place or st


def _drop_foreign(key: str, options: Sequence[Option], default: Option) -> None:
    """A value of another page or source would go on standing in the address beside the default that is shown."""
    if key in st.session_state and st.session_state[key] not in options:
        st.session_state[key] = default


def _restore(key: str, options: Sequence[Option] | None) -> None:
    """Starts a widget with what another page's widget of this key was left at, unless the link says something.

    Right after a change of page the old page's value is still in the session state, but the new widget does not
    take it over. options: None where any text will do.
    """
    value, page = st.session_state.setdefault(_KEPT, {}).get(key, (None, None))
    elsewhere = page != _page() or key not in st.session_state
    offered = value is not None if options is None else value in options
    if elsewhere and key not in st.query_params and offered:
        st.session_state[key] = value


def _remember(key: str, value: Option, options: Sequence[Option] | None, default: Option) -> None:
    """A default that nobody chose is no choice, and other pages have other ones.

    A page that does not offer what was chosen elsewhere does not make it forgotten.
    """
    kept = st.session_state[_KEPT]
    before, _ = kept.get(key, (None, None))
    offered = before is not None if options is None else before in options
    if offered or value != default:
        kept[key] = (value, _page())


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
    if keep:
        _restore(key, options)
    chosen = _at(place).segmented_control(
        label, options, default=default, key=key, format_func=title, required=True, bind="query-params",
        help=help_text, wrap=True,
    )  # fmt: skip
    value = default if chosen is None else chosen
    if keep:
        _remember(key, value, options, default)
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
    low, high = st.select_slider(
        label, rates, value=(rates[0], rates[-1]), key=key, format_func=title, bind="query-params"
    )
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
) -> Option:
    """One of a few ordered values."""
    return _at(place).select_slider(
        label, options, value=default, key=key, format_func=title, bind="query-params", help=help_text
    )


def rate(label: str, rates: Sequence[float], key: str, *, default: float, place: DeltaGenerator | None = None) -> float:
    """One of the measured rates, the nearest to `default` at first. A single one is written, not asked."""
    nearest = min(rates, key=lambda value: abs(value - default))
    if len(rates) == 1:
        _at(place).caption(f"{label}: {formats.rate(rates[0])}")
        return rates[0]
    return pick(label, rates, key, default=nearest, title=formats.rate, place=place)


def text(
    label: str, key: str, *, default: str = "", help_text: str | None = None, placeholder: str = "", keep: bool = False
) -> str:
    """A line of text. keep: as in `choose`."""
    if keep:
        _restore(key, None)
    value = st.text_input(label, default, key=key, bind="query-params", help=help_text, placeholder=placeholder).strip()
    if keep:
        _remember(key, value, None, default)
    return value
