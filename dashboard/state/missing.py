"""Compute this now: what stands below the line that says that a table is missing."""

from hashlib import sha256
from pathlib import Path

import streamlit as st
from streamlit.errors import StreamlitDuplicateElementKey

from dashboard.show import layout, menu
from dashboard.state import access, estimates, job_cards, jobs, remakes
from dashboard.state.estimates import estimated
from dashboard.state.remakes import Remake
from engine.records.errors import InputError
from engine.results.folders import MissingTable

BUTTON, START, NOT_NOW = "Compute this now", "Start", "Not now"
_ASKED = "compute-asked"  # session state: the key of the table that is asked about


def offer(folder: Path, stem: str) -> None:
    """The button, then the run with its estimate, then its progress; once on a page for each run that makes tables.
    Nothing where the app may start no run, and for a table that no run makes."""
    if access.limited():
        return
    try:
        if not remakes.possible(folder, stem):
            return
        words = " ".join(remakes.words(folder, stem))
        key = f"compute-{sha256(f'{folder} {words}'.encode()).hexdigest()[:12]}"
        asked = st.session_state.get(_ASKED) == key
        # the newest job that makes the table here and was not dismissed, whoever started it
        here = (job for job in reversed(jobs.registry().all()) if job.request.folder == remakes.target(folder))
        job = next((job for job in here if " ".join(job.request.words) == words), None)
        if job is None:
            st.button(
                BUTTON, key=key, icon=":material/play_circle:", on_click=_ask, args=(None if asked else key,),
                help="Tells first what it runs and how long that takes.",
            )  # fmt: skip
        else:
            st.container(key=key)  # so that a second place on the page does not show it again
    except (InputError, StreamlitDuplicateElementKey):
        return  # a broken manifest is told by whoever reads the table
    if job is not None:
        job_cards.show([job], f"{key}-", here=menu.here())
    elif asked:
        with st.container(border=True, key=f"{key}-box"):
            _box(folder, stem, key)


def _ask(key: str | None) -> None:
    st.session_state[_ASKED] = key


def _box(folder: Path, stem: str, key: str) -> None:
    try:
        remake = _remake(folder, stem, key)
        if remake is None:
            return
        for note in remake.notes:
            st.caption(layout.plain(note))
        if remake.request.folder != folder:
            st.caption(f"Into a run of your own: {layout.plain(str(remake.request.folder))}")
        st.code(remake.request.command, language=None, wrap_lines=True)
        estimated(f"{key}-estimate", remake.request.command, lambda: estimates.of_remake(remake), at_once=True)
    except InputError as error:
        st.warning(layout.worded(str(error)))
        st.button(NOT_NOW, key=f"{key}-no", on_click=_ask, args=(None,))
        return
    with st.container(horizontal=True):
        st.button(START, key=f"{key}-start", type="primary", on_click=_start, args=(remake,))
        st.button(NOT_NOW, key=f"{key}-no", on_click=_ask, args=(None,))


def _remake(folder: Path, stem: str, key: str) -> Remake | None:
    """The run; None, and a box for the place of a file, while a text of the folder's is not found."""
    try:
        return remakes.remake(folder, stem)
    except InputError as error:
        if "--text" not in str(error):
            raise
        st.caption("The rest of this folder was made of a file or folder of its own.")
        typed = st.text_input("Where is it?", key=f"{key}-text", help=layout.plain(str(error))).strip()
        if not typed:
            st.caption(layout.plain(str(error).split(";")[0]))
            st.button(NOT_NOW, key=f"{key}-no", on_click=_ask, args=(None,))
            return None
        return remakes.remake(folder, stem, [Path(typed).expanduser()])


def _start(made: Remake) -> None:
    job_cards.begin(jobs.registry().start, made.request)
    if jobs.registry().of(made.request):
        _ask(None)


layout.remedy(MissingTable, lambda error: offer(error.folder, error.stem))
