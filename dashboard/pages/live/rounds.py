"""Rounds: many replies that are asked for together, kept in the session while they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import fetching, stamps
from dashboard.chat.live import Entry
from dashboard.chat.tries import Request
from dashboard.pages.live.settings import Chosen, Places
from dashboard.show import layout
from engine.records.progress import each_pass


@dataclass
class Round:
    """What was asked, kept in the session so that a stopped round still shows what came."""

    request: Request
    ended: bool = False
    problem: str = ""


Of = TypeVar("Of", bound=Round)


def show(
    key: str, chosen: Chosen, request: Request, places: Places, new: Of,
    write: Callable[..., None], draw: Callable[[Of, DeltaGenerator], None], below: Callable[[Of], None], hint: str,
) -> None:  # fmt: skip
    """The round on the page. Once there is one, every change of what is asked begins the next.
    new: the round to begin; write: its replies, given it, the model, and `status` and `drawn`, where progress and they
    stand; draw: what it has so far; below: what stands below it. hint: in the place of the first one."""
    last: Of | None = st.session_state.get(f"{key}-shown")
    if last is not None and last.request.model != request.model:
        last = None
    changed = last is not None and last.request != request
    wanted = chosen.possible and (chosen.pressed or (changed and chosen.soon))
    job = fetching.due(key, new if wanted else None)
    if job is not None:
        st.session_state[f"{key}-shown"] = last = job
    with places.replies:
        drawn = st.empty()
    if job is not None:
        places.stop.button("Stop", key=f"stop-{key}")  # any click ends this script run at its next output
        work = partial(write, job, status=places.status, drawn=drawn)
        fetching.worked(key, request.model, job, job, places.status, places.stop, work)
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


def explain(reference: stamps.Reference | None, *lines: str) -> None:
    """What words and marks of replies rest on, folded."""
    with st.expander("How this is measured"):
        layout.footnote(*lines, stamps.explained(reference))


def reference(entry: Entry, status: DeltaGenerator) -> stamps.Reference | None:
    """What says whether a reply is broken; measured once for a model in memory, after its first replies."""
    passes = [0]

    def told() -> None:
        passes[0] += 1
        status.caption(f"Once for this model: its own replies to the example prompts, pass {passes[0]} …")

    with each_pass(told):
        return stamps.reference_of(entry, layout.queued_in(status))
