"""Addresses of pages that have become parts of others: links of before lead to that part, with their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import streamlit as st
from streamlit.navigation.page import Page

Settings = dict[str, list[str]]
_PARTS = {"Rank distribution": "Controls", "Claims": "Verdict"}  # of the page Controls, where they have other names


def _part(name: str, settings: Settings) -> Settings:
    return {"part": [name], **settings}


def _stability(settings: Settings) -> Settings:
    return _part("Verdict" if "measure" in settings else "Stability", settings)


def _controls(settings: Settings) -> Settings:
    (name,) = settings.get("part", ["Controls"])
    return {**settings, "part": [_PARTS.get(name, name)]}


def _judges(settings: Settings) -> Settings:
    replies = settings.pop("replies", ["A folder" if "folder" in settings else "Shipped model"])
    source = {"source": ["My results"]} if replies == ["A folder"] else {"source": replies}
    runs = {"run": settings.pop("judged")} if "judged" in settings else {}
    return {"section": ["Judges"], **source, **runs, **settings}


def _document(name: str, settings: Settings) -> Settings:
    return {**settings, "document": [name]}


# Former path -> the path of today, and the settings there from those of the link.
FORMER: dict[str, tuple[str, Callable[[Settings], Settings]]] = {
    "agreement": ("where", partial(_part, "Agreement")),
    "depth": ("where", partial(_part, "Depth")),
    "stability": ("believed", _stability),
    "controls": ("believed", _controls),
    "downstream": ("tasks", dict),
    "judges": ("refusal", _judges),
    "paper": ("reference", partial(_document, "Paper tables")),
    "methods": ("reference", partial(_document, "Methods")),
}


def pages(destinations: Mapping[str, Sequence[Page]]) -> list[Page]:
    """A page without a place in the menu for each former path, which leads on. What was on the page is in the fold of
    its part, which is open."""
    by_path = {page.url_path: page for pages in destinations.values() for page in pages}

    def lead(path: str, settings_of: Callable[[Settings], Settings]) -> None:
        settings = {name: st.query_params.get_all(name) for name in st.query_params}
        st.switch_page(by_path[path], query_params={"more": "true", **settings_of(settings)})

    return [
        st.Page(partial(lead, *target), title=former.capitalize(), url_path=former, visibility="hidden")
        for former, target in FORMER.items()
    ]
