"""Widgets whose state is in the URL, so that a copied link shows the same page.

Streamlit writes a bound widget's value into the address under its key, in the words the page shows, and
drops what is at its default. Keys are therefore part of shared links and are never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from dashboard import formats

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
) -> Option:
    """One of many, in a list that opens. keep: other pages with the same key start with what was chosen here."""
    index = list(options).index(default) if default is not None and default in options else 0
    kept = st.session_state.setdefault(_KEPT, {}) if keep else {}
    if key not in st.session_state and key not in st.query_params and kept.get(key) in options:
        st.session_state[key] = kept[key]
    chosen = st.selectbox(
        label, options, index=index, key=key, format_func=title, bind="query-params", help=help_text
    )
    kept[key] = options[index] if chosen is None else chosen
    return options[index] if chosen is None else chosen


def switch(
    label: str,
    options: Sequence[Option],
    key: str,
    *,
    default: Option,
    title: Callable[[Option], str] = str,
    help_text: str | None = None,
) -> Option:
    """One of few, all in sight."""
    chosen = st.segmented_control(
        label, options, default=default, key=key, format_func=title, required=True, bind="query-params",
        help=help_text,
    )  # fmt: skip
    return default if chosen is None else chosen


def choose_several(
    label: str,
    options: Sequence[str],
    key: str,
    *,
    title: Callable[[str], str] = str,
    help_text: str | None = None,
) -> list[str]:
    """Any of many; all at first."""
    return st.pills(
        label, options, selection_mode="multi", default=list(options), key=key, format_func=title,
        bind="query-params", help=help_text,
    )  # fmt: skip


def rate_range(
    label: str, rates: Sequence[float], key: str, *, title: Callable[[float], str]
) -> tuple[float, float]:
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
) -> Option:
    """One of a few ordered values."""
    return st.select_slider(
        label, options, value=default, key=key, format_func=title, bind="query-params", help=help_text
    )


def rate(label: str, rates: Sequence[float], key: str, *, default: float) -> float:
    """One of the measured rates, the nearest to `default` at first. A single one is written, not asked."""
    nearest = min(rates, key=lambda value: abs(value - default))
    if len(rates) == 1:
        st.caption(f"{label}: {formats.rate(rates[0])}")
        return rates[0]
    return pick(label, rates, key, default=nearest, title=formats.rate)


def text(
    label: str, key: str, *, default: str = "", help_text: str | None = None, placeholder: str = ""
) -> str:
    """A line of text."""
    return st.text_input(
        label, default, key=key, bind="query-params", help=help_text, placeholder=placeholder
    ).strip()
