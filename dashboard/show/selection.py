"""Widgets whose state is in the URL, so that a copied link shows the same page.

Streamlit writes a bound widget's value into the address under its key, in the words the page shows, and
drops what is at its default. Keys are therefore part of shared links and are never renamed."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import formats, palette
from dashboard.show import layout
from dashboard.show.kept import Setting, Several

Option = TypeVar("Option")
MORE = "more"  # of the fold; in shared links


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
    return _kept(setting, _at(place).selectbox, label, options, index=index, format_func=title, help=help_text)


def choose_domain(
    table: pl.DataFrame, key: str, label: str = "Domain", *, keep: bool = False, place: DeltaGenerator | None = None
) -> str:
    domains = table["domain"].unique(maintain_order=True).to_list()
    return choose(label, domains, key, title=palette.capital, keep=keep, place=place)


def choose_selector(
    table: pl.DataFrame, key: str, *, default: str | None = None, keep: bool = False,
    place: DeltaGenerator | None = None,
) -> str:  # fmt: skip
    known = palette.in_order(table["selector"].unique())
    return choose("Selector", known, key, default=default, title=palette.title, keep=keep, place=place)


def _at(place: DeltaGenerator | None) -> Any:
    """Where a widget goes; streamlit itself puts it at the place of the call."""
    return place or st


def switch(
    label: str, options: Sequence[Option], key: str, *, default: Option, title: Callable[[Option], str] = str,
    help_text: str | None = None, place: DeltaGenerator | None = None,
) -> Option:  # fmt: skip
    """One of few, all in sight. place: as in `choose`."""
    setting = Setting(key, options.__contains__, default)
    return _kept(
        setting, _at(place).segmented_control, label, options, default=default, format_func=title, required=True,
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
    return _kept(setting, _at(place).select_slider, label, options, value=default, format_func=title, help=help_text)


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
    return bool(_kept(Setting(key, lambda _: True, default), st.toggle, label, default, help=help_text))


def number(label: str, least: int, most: int, key: str, *, default: int) -> int:
    """A whole number; one that another choice has put out of reach becomes the nearest that there is."""
    there = st.session_state.get(key)
    if isinstance(there, int) and not least <= there <= most:
        st.session_state[key] = min(max(there, least), most)
    first = min(max(default, least), most)
    setting = Setting(key, range(least, most + 1).__contains__, first, seen=int)
    return int(_kept(setting, st.number_input, label, least, most, value=first))


def tabs(labels: Sequence[str], key: str) -> list[Any]:
    """Tabs of which the open one alone is drawn (`open`)."""
    setting = Setting(key, labels.__contains__, labels[0])
    setting.start()
    made = st.tabs(labels, key=key, bind="query-params", on_change=setting.changed)
    setting.note(next((label for label, tab in zip(labels, made, strict=True) if tab.open), labels[0]))
    return list(made)


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


def more(draw: Callable[[], object]) -> None:
    """What is asked for less often, folded below the page's first figures, and drawn when it is unfolded."""
    fold = st.expander("More", key=MORE, on_change="rerun", bind="query-params")
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
