"""Rounds: many replies that are asked for together, kept in the session while they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import fetching
from dashboard.chat.live import Entry
from dashboard.chat.tries import Request
from dashboard.pages.live.settings import Chosen
from dashboard.show import layout
from engine.records.errors import InputError


@dataclass(frozen=True)
class Places:
    """Where progress, Stop, downloads, the replies and what is below them stand."""

    status: DeltaGenerator
    stop: DeltaGenerator
    bars: DeltaGenerator
    replies: DeltaGenerator
    below: DeltaGenerator


@dataclass
class Round:
    """What was asked, kept in the session so that a stopped round still shows what came."""

    request: Request
    ended: bool = False
    problem: str = ""


Of = TypeVar("Of", bound=Round)


def show(
    key: str,
    chosen: Chosen,
    request: Request,
    places: Places,
    begin: Callable[[Request], Of],
    write: Callable[[Of, Entry, DeltaGenerator, DeltaGenerator], None],
    draw: Callable[[Of, DeltaGenerator], None],
    below: Callable[[Of], None],
    hint: str,
) -> None:
    """The round on the page. Once there is one, every change of what is asked begins the next.

    begin: a round; write: its replies, given the model, and where progress and they stand; draw: what it has so far;
    below: what stands below it. hint: in the place of the first one.
    """
    last: Of | None = st.session_state.get(f"{key}-shown")
    if last is not None and last.request.model != request.model:
        last = None
    changed = last is not None and last.request != request
    job = fetching.due(key, begin(request) if chosen.possible and (chosen.pressed or changed) else None)
    if job is not None:
        st.session_state[f"{key}-shown"] = last = job
    with places.replies:
        drawn = st.empty()
    if job is not None:
        places.stop.button("Stop", key=f"stop-{key}")  # any click ends this script run at its next output
        try:
            with fetching.model(key, request.model, job, places.status.caption) as entry:
                write(job, entry, places.status, drawn)
            job.ended = True
            places.status.empty()
        except InputError as error:
            job.problem, job.ended = str(error), True
            places.status.empty()
        except fetching.Downloading:  # the bar has a Stop of its own
            pass
        places.stop.empty()
    if fetching.under_way(key, places.bars, of_all=True):
        places.status.empty()
    elif last is None:
        places.status.caption(hint)
    else:
        draw(last, drawn)
        if last.problem:
            places.status.warning(layout.worded(last.problem))
            return
        with places.below:
            below(last)
