"""Live edit: one prompt, answered by the model as it is and with rows removed, side by side."""

from __future__ import annotations

from contextlib import closing

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import edits, layout, live, tries
from dashboard.tries import Request, Try
from dashboard.views import live_history, live_panels, live_settings
from dashboard.views.live_history import SHOWN
from dashboard.views.live_panels import Panels
from engine.errors import InputError

HOW_TO_READ = (
    "The same prompt is answered twice, by the model as it is and with the chosen rows zeroed. "
    "The margin is what the model leans to as its reply begins: above 0 to refusing, below 0 to answering."
)
_LAST_REQUEST = "live-request"  # session state: the settings of the last script run


def render() -> None:
    """The page."""
    layout.heading("Live edit", HOW_TO_READ)
    try:
        request, at_once = live_settings.request()
    except InputError as error:
        layout.problem(error)
        return
    possible = bool(request.model and request.prompt.strip())
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button("Run", type="primary", key="run", disabled=not possible)
        stop = st.empty()
    last: Try | None = st.session_state.get(SHOWN)
    wanted = _wanted(request, last, pressed, at_once) if possible else ()
    status = st.empty()
    panels = Panels(_panels(request, last, running=bool(wanted)))
    if wanted:
        last = _begin(request, last, wanted, pressed=pressed)
        stop.button("Stop", key="stop")  # any click ends this script run at its next output
        try:
            _run(last, wanted, status, panels)
        except InputError as error:
            last.problem = str(error)
        last.ended = True
        live_history.keep(last)
        stop.empty()
    if last is None:
        status.caption("Choose an example or write a prompt, then press Run.")
    else:
        live_panels.show(last, status, panels)
    live_history.section()


def _wanted(request: Request, last: Try | None, pressed: bool, at_once: bool) -> tuple[live.Side, ...]:
    """The sides to write now: all on Run, or on a change where that is asked for; a control or margins that were
    just switched on are added to the try on the page."""
    before: Request | None = st.session_state.get(_LAST_REQUEST)
    st.session_state[_LAST_REQUEST] = request
    if pressed:
        return request.sides
    if before in (None, request):  # nothing was changed: a link runs nothing by being opened
        return ()
    if last is not None and last.about(request):
        return last.missing(request)
    return request.sides if at_once else ()


def _panels(request: Request, last: Try | None, *, running: bool) -> tuple[live.Side, ...]:
    if running or last is None or last.about(request):
        return request.sides
    return tries.SIDES if "control" in last.outcomes else tries.SIDES[:2]


def _begin(request: Request, last: Try | None, wanted: tuple[live.Side, ...], *, pressed: bool) -> Try:
    """A new try, or the one on the page where sides are added to it."""
    if last is None or pressed or not last.about(request):
        last = Try(request)
        st.session_state[SHOWN] = last
    last.request, last.ended = request, False
    for side in wanted:
        last.texts[side] = ""
        last.outcomes.pop(side, None)
    return last


def _run(now: Try, wanted: tuple[live.Side, ...], status: DeltaGenerator, panels: Panels) -> None:
    def loading(seconds: float) -> None:
        status.info(f"Loading the model … ({seconds:.0f} s)")

    status.caption("Loading the model …")
    with live.POOL.use(now.request.model, loading) as entry:
        _write(now, wanted, status, panels, entry)


def _write(
    now: Try, wanted: tuple[live.Side, ...], status: DeltaGenerator, panels: Panels, entry: live.Entry
) -> None:
    request = now.request

    def progress(what: str, done: int, total: int) -> None:
        status.progress(
            min(done / max(total, 1), 1.0), text=f"Computing scores for this model: {what}, {done} of {total}"
        )

    mask = edits.mask_of(entry, request.edit, progress)
    now.removed = edits.removed_per_projection(entry, mask)
    now.mask_sha256, now.model = tries.mask_hash(mask), dict(entry.loaded.fingerprint)
    control = None
    if request.control_seed is not None:
        control = edits.control_of(entry, mask, request.control_seed)
        now.control_seed = request.control_seed
    for side in panels.sides:
        panels.write(side, now.texts[side])
    status.caption("Writing …")
    events = live.replies(
        entry.loaded, mask, request.prompt, request.reply_tokens,
        sides=wanted, control=control, margins_along=request.margins,
    )  # fmt: skip
    with closing(events):
        queued = False
        for event in events:
            if isinstance(event, live.Waiting):
                status.info(f"Queued: another session is using this model ({event.seconds:.0f} s).")
                queued = True
                continue
            if queued:
                status.caption("Writing …")
                queued = False
            if isinstance(event, live.Piece):
                now.texts[event.side] += event.text
                panels.write(event.side, now.texts[event.side])
            else:
                now.outcomes[event.side] = event
                panels.tell(event)
