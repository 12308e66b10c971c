"""The tries of this session: verdicts side by side, one to open again, all of them as a file."""

from __future__ import annotations

import streamlit as st

from dashboard.chat import tries
from dashboard.chat.tries import Try
from dashboard.pages.live import settings as live_settings
from dashboard.show import layout

SHOWN = "live-shown"  # session state: the try on the page
_TRIES = "live-tries"  # session state: the complete ones, oldest first


def keep(one: Try) -> None:
    """Adds a complete try; the oldest goes when there are too many. A try that grew a side is there already."""
    kept = _kept()
    if one.complete and not any(other is one for other in kept):
        kept.append(one)
        del kept[: -tries.KEPT]


def section() -> None:
    """Nothing until there is a try."""
    kept = _kept()
    if not kept:
        return
    st.markdown("#### Tries of this session")
    # Prompts are cells of a table: shown as text, whatever they hold.
    st.dataframe(tries.comparison(kept), hide_index=True, height=min(38 + 35 * len(kept), 250))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        labels = [f"{number}: {one.request.edit.describe()}" for number, one in enumerate(kept, start=1)]
        st.selectbox(
            "Open a try again", labels[::-1], index=None, key="reopen", on_change=_open, args=(labels,),
            placeholder="its replies and its settings",
        )  # fmt: skip
        st.download_button(
            "Save session", lambda: tries.session_json(kept), file_name="live-session.json",
            mime="application/json", on_click="ignore", help="JSON of all tries.",
        )  # fmt: skip
    many = f"{len(kept)} tries" if len(kept) > 1 else "1 try"
    layout.footnote(f"{many} so far; they stay until this page is closed, the last {tries.KEPT} of them.")


def _open(labels: list[str]) -> None:
    """Shows an earlier try and puts its settings back."""
    chosen = st.session_state.get("reopen")
    if chosen in labels:
        one = _kept()[labels.index(chosen)]
        st.session_state[SHOWN] = one
        live_settings.restore(one.request)


def _kept() -> list[Try]:
    return st.session_state.setdefault(_TRIES, [])
