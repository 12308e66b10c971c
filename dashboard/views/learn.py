"""Learn: a guided path in six steps. Each asks a question that a live figure of the shipped model settles."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import streamlit as st

from dashboard import layout, lessons, selection, tools
from dashboard.lesson_answers import Settled
from dashboard.lessons import LESSONS, Lesson
from dashboard.views import learn_behaviour, learn_ranking
from engine.errors import InputError

HOW_TO_READ = (
    "Read, answer, then look at the figure: it is measured on the small model that ships with this program, and it "
    "decides which answer holds."
)
ANSWERS = "answers"  # in the URL: 1b.3a
_KEPT = "learn-answers"


@dataclass(frozen=True)
class Shown:
    """What a step's figure showed: its settled answer, its values, where they come from."""

    settled: Settled
    frame: pl.DataFrame
    provenance: str


FIGURES: dict[str, Callable[[], tuple[Settled, pl.DataFrame, str]]] = {
    lessons.ROW.id: learn_ranking.row,
    lessons.ZERO.id: learn_ranking.zero,
    lessons.ORDERS.id: learn_ranking.orders,
    lessons.STABILITY.id: learn_ranking.stability,
    lessons.INSTALL.id: learn_behaviour.install,
    lessons.CONTROL.id: learn_behaviour.control,
}


def render() -> None:
    """The page."""
    layout.heading("Learn", HOW_TO_READ)
    given = _given()
    ids = [lesson.id for lesson in LESSONS]
    titles = {lesson.id: f"{number}. {lesson.title}" for number, lesson in enumerate(LESSONS, 1)}
    step = selection.switch("Step", ids, "step", default=ids[0], title=titles.__getitem__)
    number = ids.index(step)
    lesson = LESSONS[number]
    st.progress(len(given) / len(LESSONS), text=f"{len(given)} of {len(LESSONS)} questions answered")
    st.subheader(titles[step], anchor=False)
    st.markdown(lesson.text)
    left, right = st.columns([3, 2])
    with right, st.container(border=True):
        chosen = _ask(lesson, number, given)
        verdict = st.container(key="verdict")
    shown: Shown | None = None
    with left:
        try:
            shown = Shown(*FIGURES[step]())
        except InputError as error:
            layout.problem(error)
    with verdict:
        _judge(lesson, chosen, shown)
    _walk(ids, number)
    tools.end(shown.frame if shown else None, f"learn-{step}", *([shown.provenance] if shown else []))


def _given() -> dict[int, str]:
    """Answers by number of the step: from this session, at first from the link."""
    if _KEPT not in st.session_state:
        found = re.findall(r"(\d)([a-c])", st.query_params.get(ANSWERS, ""))
        st.session_state[_KEPT] = {
            int(number): answer
            for number, answer in found
            if 1 <= int(number) <= len(LESSONS) and answer in LESSONS[int(number) - 1].answers
        }
    given: dict[int, str] = st.session_state[_KEPT]
    if given:
        st.query_params[ANSWERS] = ".".join(f"{number}{answer}" for number, answer in sorted(given.items()))
    return given


def _ask(lesson: Lesson, number: int, given: dict[int, str]) -> str | None:
    key = f"learn-answer-{lesson.id}"
    options = list(lesson.answers)

    def keep() -> None:
        given[number + 1] = st.session_state[key]

    before = given.get(number + 1)
    answer: str | None = st.radio(
        f"**{lesson.question}**", options, index=None if before is None else options.index(before), key=key,
        format_func=lesson.answers.__getitem__, on_change=keep,
    )  # fmt: skip
    return answer


def _judge(lesson: Lesson, chosen: str | None, shown: Shown | None) -> None:
    if shown is None:
        st.info("The figure is not there yet, so nothing can be settled. What to do stands beside it.")
    elif chosen is None:
        st.caption("Choose an answer; the figure settles it.")
    elif not shown.settled.answer:
        st.info("These numbers settle it neither way. " + layout.plain(shown.settled.why))
    elif chosen == shown.settled.answer:
        st.success("The figure agrees. " + layout.plain(shown.settled.why))
    else:
        right = lesson.answers[shown.settled.answer]
        st.warning(f"The figure says otherwise: “{right}” " + layout.plain(shown.settled.why))


def _walk(ids: list[str], number: int) -> None:
    def go(to: int) -> None:
        st.session_state["step"] = ids[to]

    with st.container(horizontal=True):
        st.button("Back", key="learn-back", disabled=number == 0, on_click=go, args=(number - 1,))
        st.button(
            "Next", key="learn-next", type="primary", disabled=number == len(ids) - 1, on_click=go, args=(number + 1,)
        )  # fmt: skip
