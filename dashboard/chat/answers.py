"""A question to a model in memory, asked at once or by a button, and its last answer in this session.

A part that pages put where they like and run last: what it asks may take a while, and the page is drawn by then. What
is found is kept as it comes, so that an answer that was stopped still shows what was there."""

from collections.abc import Callable, Generator, Hashable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import fetching, live
from dashboard.chat.live import Entry
from dashboard.show import layout

Say = Callable[[str, int, int], None]  # what is done, how much of how much; may raise to give up
# Of what is asked: what is found, each time more than before.
Work = Callable[[Any, "Entry", Say], Generator[Any, None, None]]
Show = Callable[[Any, Any, bool], None]  # what was asked, what was found, and whether that is all: only then widgets


@dataclass(frozen=True)
class Question:
    """What is asked of which model. Equal questions have one answer. weights_hash: of the weights that it is about."""

    model: str
    weights_hash: str | None
    about: Hashable


@dataclass
class Answer:
    """ended: all of it was found, it was stopped, or it failed with `problem`."""

    question: Question
    found: list[Any] = field(default_factory=list)
    ended: bool = False
    problem: str = ""

    def end(self) -> None:
        """Not asked again by itself."""
        self.ended = True


def at_hand(model: str) -> bool:
    """May it be asked without a button? The shipped model is small and loaded as the app starts; others take long."""
    return model == live.DEMO


def ask(
    key: str, question: Question | None, work: Work, show: Show, place: DeltaGenerator, *, button: str = ""
) -> None:
    """The answer to this question in `place`, asked for by a button or, without one, at once.
    question: None = nothing to ask yet. An answer to another question is not shown."""
    name = f"answer-{key}"
    with place:
        top = st.container(horizontal=True, vertical_alignment="center")
        status, below = st.empty(), st.empty()
    pressed = bool(button) and top.button(button, key=f"{key}-ask", type="primary", disabled=question is None)
    stop = top.empty()
    last = _last(name, question)
    wanted = pressed or (not button and not (last and last.ended))
    now: tuple[Question, Work] | None = (question, work) if wanted and question is not None else None
    job: tuple[Question, Work] | None = fetching.due(key, now)
    if job is not None:
        asked, job_work = job
        answer = st.session_state[name] = Answer(asked)

        def write(entry: Entry) -> None:
            with closing(job_work(asked.about, entry, layout.progress_in(status))) as finds:
                for found in finds:
                    answer.found.append(found)
                    with below.container():
                        show(asked.about, found, False)

        stop.button("Stop", key=f"{key}-stop", on_click=answer.end)  # any click ends this script run at its next output
        fetching.worked(key, asked.model, job, answer, status, stop, write, asked.weights_hash)
    if fetching.under_way(key, status):
        return
    last = _last(name, question)
    if last is None:
        return
    if last.problem:
        status.warning(layout.worded(last.problem))
    if last.found:
        with below.container():
            show(last.question.about, last.found[-1], True)


def _last(name: str, question: Question | None) -> Answer | None:
    last: Answer | None = st.session_state.get(name)
    return last if last is not None and last.question == question else None
