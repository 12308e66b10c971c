"""Learn: a guided path in six steps. Each asks a question that a live figure of the shipped model settles."""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl
import streamlit as st

from dashboard.pages.learn import ranking_steps, refusal_steps, texts
from dashboard.pages.learn.answers import Settled
from dashboard.pages.learn.texts import LESSONS, Lesson
from dashboard.show import layout, selection, tools

HOW_TO_READ = (
    "Read, answer, then look at the figure: it is measured on the small model that ships with this program, and it "
    "decides which answer holds."
)
ANSWERS = "answers"  # in the URL: 1b.3a
_KEPT = "learn-answers"


FIGURES: dict[str, Callable[[], tuple[Settled, pl.DataFrame, str]]] = {
    texts.ROW.id: ranking_steps.row,
    texts.ZERO.id: ranking_steps.zero,
    texts.ORDERS.id: ranking_steps.orders,
    texts.STABILITY.id: ranking_steps.stability,
    texts.INSTALL.id: refusal_steps.install,
    texts.CONTROL.id: refusal_steps.control,
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
    settled: Settled | None = None
    frame: pl.DataFrame | None = None
    lines: list[str] = []
    with left, layout.told():
        settled, frame, *lines = FIGURES[step]()
    with verdict:
        _judge(lesson, chosen, settled)
    _walk(ids, number)
    tools.end(frame, f"learn-{step}", *lines)


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


def _judge(lesson: Lesson, chosen: str | None, settled: Settled | None) -> None:
    if settled is None:
        st.info("The figure is not there yet, so nothing can be settled. What to do stands beside it.")
    elif chosen is None:
        st.caption("Choose an answer; the figure settles it.")
    elif not settled.answer:
        st.info("These numbers settle it neither way. " + layout.plain(settled.why))
    elif chosen == settled.answer:
        st.success("The figure agrees. " + layout.plain(settled.why))
    else:
        right = lesson.answers[settled.answer]
        st.warning(f"The figure says otherwise: “{right}” " + layout.plain(settled.why))


def _walk(ids: list[str], number: int) -> None:
    def go(to: int) -> None:
        st.session_state["step"] = ids[to]

    with st.container(horizontal=True):
        st.button("Back", key="learn-back", disabled=number == 0, on_click=go, args=(number - 1,))
        st.button(
            "Next", key="learn-next", type="primary", disabled=number == len(ids) - 1, on_click=go, args=(number + 1,)
        )  # fmt: skip
