"""Live edit: one prompt, answered by the model as it is and with rows removed, side by side."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import edits, effects, live, tries
from dashboard.chat.side_by_side import Panels
from dashboard.chat.tries import Request, Try
from dashboard.pages.live import history as live_history, panels as live_panels, settings as live_settings
from dashboard.pages.live.history import SHOWN
from dashboard.show import layout
from engine.records.errors import InputError

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
    possible = bool(request.model and request.edit.selector and request.prompt.strip())
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button("Run", type="primary", key="run", disabled=not possible)
        stop = st.empty()
    last: Try | None = st.session_state.get(SHOWN)
    wanted = _wanted(request, last, pressed, at_once) if possible else ()
    status = st.empty()
    sides = _sides(request, last, running=bool(wanted))
    panels, below = Panels({side: tries.TITLES[side] for side in sides}, "reply"), st.container()
    if wanted:
        last = _begin(request, last, wanted, pressed=pressed)
        stop.button("Stop", key="stop")  # any click ends this script run at its next output
        try:
            status.caption("Loading the model …")
            with live.POOL.use(request.model, lambda s: status.info(f"Loading the model … ({s:.0f} s)")) as entry:
                _write(last, wanted, status, panels, entry)
        except InputError as error:
            last.problem = str(error)
        last.ended = True
        live_history.keep(last)
        stop.empty()
    if last is None:
        status.caption("Choose an example or write a prompt, then press Run.")
    else:
        live_panels.show(last, status, panels, below)
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


def _sides(request: Request, last: Try | None, *, running: bool) -> tuple[live.Side, ...]:
    if running or last is None or last.about(request):
        return request.sides
    return live.SIDES if "control" in last.outcomes else live.SIDES[:2]


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


def _write(now: Try, wanted: tuple[live.Side, ...], status: DeltaGenerator, panels: Panels, entry: live.Entry) -> None:
    request = now.request

    def progress(what: str, done: int, total: int) -> None:
        status.progress(min(done / max(total, 1), 1.0), text=f"{what}: {done} of {total}")

    def scoring(what: str, done: int, total: int) -> None:
        progress(f"Computing scores for this model: {what}", done, total)

    mask = edits.mask_of(entry, request.edit, scoring)
    now.removed = edits.removed_per_projection(entry, mask)
    now.mask_sha256, now.model = tries.mask_hash(mask), dict(entry.loaded.fingerprint)
    now.effect = effects.in_words(effects.checked_effect(entry, mask, request.edit, progress))
    control = None
    if request.control_seed is not None:
        control = edits.control_of(entry, mask, request.control_seed)
        now.control_seed = request.control_seed
    for side in panels.sides:
        panels.write(side, now.texts[side])
    panels.follow(
        lambda waiting: live.replies(
            entry.loaded, mask, request.prompt, request.reply_tokens,
            sides=wanted, control=control, margins_along=request.margins, on_wait=waiting,
        ),
        status, now.texts, now.outcomes,
    )  # fmt: skip
