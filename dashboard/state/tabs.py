"""Tabs that packages of their own bring to a page: one registration, or an entry point of `selector_audit.tabs`.

@register_tab("smallest", page="believed", title="The smallest edit")
def show(source: Source) -> pl.DataFrame: ..."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from dashboard.state.sources import Source
from engine.records.errors import InputError
from engine.records.registry import Registry

Show = Callable[[Source], pl.DataFrame]  # draws the tab; returns the values that its downloads hold
PAGES = {"believed": "believed", "controls": "believed", "refusal": "refusal"}  # what takes tabs; by former names, too


@dataclass(frozen=True)
class Tab:
    """page: on which it is; title: its name among the page's parts."""

    page: str
    title: str
    show: Show


TABS: Registry[Tab] = Registry("tab")


def register_tab(tab_id: str, *, page: str, title: str) -> Callable[[Show], Show]:
    """Decorator: show the function's result as a part of the page. Errors: InputError for a taken id, another page."""
    if page not in PAGES:
        raise InputError(f"a tab is on the page {' or '.join(dict.fromkeys(PAGES.values()))}, got {page!r}")

    def register(show: Show) -> Show:
        TABS.add(tab_id, Tab(PAGES[page], title, show), show)
        return show

    return register


def tabs_of(page: str) -> dict[str, Show]:
    """Title -> what draws it, of the tabs of a page."""
    return {tab.title: tab.show for tab in TABS if tab.page == page}
