"""What a run takes, in words: counted at once or when a button asks for it, and remembered for this session."""

from collections.abc import Callable, Hashable

import streamlit as st

from dashboard.show import layout
from engine.records.errors import InputError

_SAID = "estimates"  # session state: what was asked about -> what was found


def estimated(key: str, of: Hashable, find: Callable[[], str], *, at_once: bool = False, possible: bool = True) -> None:
    """The estimate of `of`, by `find`, which may take seconds. at_once: without the button `key`.
    Errors: those of `find`, remembered as well."""
    said: dict[Hashable, str | InputError] = st.session_state.setdefault(_SAID, {})
    asked = at_once or st.button(
        "Estimate", key=key, icon=":material/timer:", disabled=not possible,
        help="Counted on the model's shapes and this machine's speed. Of a model of the hub its small files are "
        "fetched, not its weights.",
    )  # fmt: skip
    known = said.get(of)
    if asked and (known is None or (not at_once and isinstance(known, InputError))):
        with st.spinner("Counting what it takes …"):
            try:
                known = said[of] = find()
            except InputError as error:
                known = said[of] = error
    if isinstance(known, InputError):
        raise known
    if known:
        st.caption(layout.plain(known))
