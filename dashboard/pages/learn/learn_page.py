"""Learn: a guided path in six steps. Each asks for a guess first, then shows the live figure that settles it."""

import re

import polars as pl
import streamlit as st

from dashboard.pages.learn import steps
from dashboard.pages.learn.steps import LESSONS, Lesson, Settled
from dashboard.show import layout, selection, stage, tools

LINE = "Read, guess, then look: the figure, measured on the small model that ships here, decides which answer holds."
ANSWERS = "answers"  # in the URL: 1b.3a
_KEPT = "learn-answers"
_PEEKED = "learn-peeked"  # session state: numbers of steps whose figure was asked for without a guess
_MOVED = "learn-moved"  # session state: a step was just left by a button at the foot of the page
_TO_THE_TOP = "<script>document.querySelector('[data-testid=stMain]')?.scrollTo({top: 0})</script>"

FIGURES = (steps.row, steps.zero, steps.orders, steps.stability, steps.install, steps.control)  # as the lessons are


def render() -> None:
    top = layout.heading("Learn", LINE)
    if st.session_state.pop(_MOVED, False):
        st.html(_TO_THE_TOP, unsafe_allow_javascript=True)
    given = _given()
    ids = [lesson.id for lesson in LESSONS]
    titles = {lesson.id: f"{number}. {lesson.title}" for number, lesson in enumerate(LESSONS, 1)}
    with layout.bar(top):
        step = selection.choose("Step", ids, "step", default=ids[0], title=titles.__getitem__)
        st.progress(len(given) / len(LESSONS), text=f"{len(given)} of {len(LESSONS)} questions answered")
    number = ids.index(step)
    lesson = LESSONS[number]
    left, right = st.columns([2, 3])  # on a phone the text and the guess stand above what they are about
    with left:
        st.header(titles[step], anchor=False)
        st.markdown(lesson.text)
    revealed = number + 1 in given or number in st.session_state.setdefault(_PEEKED, set())
    with left if revealed else right, st.container(border=True):  # above the picture until there is a guess
        verdict = st.empty()  # first, where it is in sight
        _ask(lesson, number, given, revealed)
    settled: Settled | None = None
    frame: pl.DataFrame | None = None
    lines: list[str] = []
    with right, st.container(key="learn-figures" if revealed else "learn-before"), layout.told():
        if revealed:
            settled, frame, *lines = FIGURES[number]()
        else:
            picture = steps.before_guess(step)
            tools.show(picture, f"{step}-before", finding=lesson.ahead, below=lesson.reading, hero=stage.on())
    if number + 1 in given:
        with verdict.container(key="verdict"):
            if settled is None:
                st.info("The figure is not there yet, so nothing can be settled. What to do stands beside it.")
            elif not settled.answer:
                st.info("These numbers settle it neither way. " + layout.plain(settled.why))
            elif given[number + 1] == settled.answer:
                st.success("The figure agrees. " + layout.plain(settled.why))
            else:
                right_one = lesson.answers[settled.answer]
                st.warning(f"The figure says otherwise: “{right_one}” " + layout.plain(settled.why))
    _walk(ids, number, seen=revealed)
    tools.end(frame, f"learn-{step}", *lines)


def _given() -> dict[int, str]:
    """Answers by number of the step: from this session, at first from the link."""
    if _KEPT not in st.session_state:
        answers = re.findall(r"(\d)([a-c])", st.query_params.get(ANSWERS, ""))
        st.session_state[_KEPT] = {
            int(number): answer
            for number, answer in answers
            if 1 <= int(number) <= len(LESSONS) and answer in LESSONS[int(number) - 1].answers
        }
    given: dict[int, str] = st.session_state[_KEPT]
    if given:
        st.query_params[ANSWERS] = ".".join(f"{number}{answer}" for number, answer in sorted(given.items()))
    elif ANSWERS in st.query_params:
        del st.query_params[ANSWERS]
    return given


def _ask(lesson: Lesson, number: int, given: dict[int, str], revealed: bool) -> None:
    """The question, and the button that makes an answer the visitor's guess; a made guess can be taken back."""
    st.subheader("Your guess", anchor=False)
    if (before := given.get(number + 1)) is not None:
        _guessed(lesson, before, number, given)
        return
    answer = st.radio(
        f"**{lesson.question}**", list(lesson.answers), index=None, key=f"learn-answer-{lesson.id}",
        format_func=lesson.answers.__getitem__,
    )  # fmt: skip

    def guess() -> None:
        if answer is not None:
            given[number + 1] = answer

    with st.container(horizontal=True):
        st.button("Make this my guess", key="learn-guess", type="primary", disabled=answer is None, on_click=guess)
        if not revealed:
            peek = st.session_state[_PEEKED].add
            st.button("Show it without a guess", key="learn-peek", on_click=peek, args=(number,))


def _guessed(lesson: Lesson, made: str, number: int, given: dict[int, str]) -> None:
    """A guess that was made, among the answers. (A disabled choice would be too faint to read.)"""

    def again() -> None:
        given.pop(number + 1, None)
        st.session_state[_PEEKED].discard(number)

    st.markdown(f"**{lesson.question}**")
    for answer, text in lesson.answers.items():
        mark = "radio_button_checked: **Your guess:**" if answer == made else "radio_button_unchecked:"
        st.markdown(f":material/{mark} {text}")
    st.button("Guess again", key="learn-again", on_click=again)


def _walk(ids: list[str], number: int, *, seen: bool) -> None:
    """seen: what the step asks was guessed, so that the next one is what to do."""

    def go(to: int) -> None:
        st.session_state["step"] = ids[to]
        st.session_state[_MOVED] = True

    with st.container(horizontal=True):
        st.button("Back", key="learn-back", disabled=number == 0, on_click=go, args=(number - 1,))
        st.button(
            "Next", key="learn-next", type="primary" if seen else "secondary", disabled=number == len(ids) - 1,
            on_click=go, args=(number + 1,),
        )  # fmt: skip
