"""Compare: models and runs that are looked at together, whatever page is open. Part of the address.

It stands in the sidebar of every page; what compares models, compares those chosen there."""

from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from dashboard.state import offers
from dashboard.state.offers import Offer

KEY = "basket"  # in the address; never renamed
MOST = 6  # as many as stand in one row of small multiples
HELP = (
    "Models and runs that stay side by side from page to page: small multiples on Curves, the leaderboard, and the "
    "refusal figure over models show these. Empty: what each page shows by itself."
)


def show() -> None:
    """In the sidebar of every page. What a link names and is not there any more is left out."""
    known = list(offers.everything())
    if KEY in st.session_state:
        kept = [name for name in st.session_state[KEY] if name in known]
        if kept != list(st.session_state[KEY]):
            st.session_state[KEY] = kept
    with st.sidebar:
        st.multiselect(
            "Compare", known, key=KEY, bind="query-params", max_selections=MOST, help=HELP,
            placeholder="Models side by side",
        )  # fmt: skip


def chosen(offered: Mapping[str, Offer]) -> dict[str, Offer]:
    """Of all that is offered what is compared, in the order of the choice; empty where nothing is chosen."""
    names = list(st.session_state[KEY] if KEY in st.session_state else st.query_params.get_all(KEY))
    known = _named(offered) if names else {}
    return {name: known[name] for name in names if name in known}


def _named(offered: Mapping[str, Offer]) -> dict[str, Offer]:
    """The offers by the names that they are compared under: a page's own run has another name on that page."""
    by_place = {_place(offer): name for name, offer in offers.everything().items()}
    return {by_place.get(_place(offer), name): offer for name, offer in offered.items()}


def _place(offer: Offer) -> tuple[Path | None, str]:
    return None if offer.folder is None else offer.folder.resolve(), offer.model
