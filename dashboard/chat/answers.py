"""A question to a model in memory, asked at once or by a button, and its last answer in this session; and a trial: rows
of the model are zeroed, and what changes is shown, NLL and the reply to a prompt.

A part that pages put where they like and run last: what it asks may take a while, and the page is drawn by then. What
is found is kept as it comes, so that an answer that was stopped still shows what was there."""

from collections.abc import Callable, Generator, Hashable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import formats
from dashboard.chat import effects, fetching, live, measure, stamps
from dashboard.chat.edits import Edit
from dashboard.chat.live import Entry, Side
from dashboard.chat.tries import NO_ROWS
from dashboard.show import layout
from engine.edits.masks import Mask

Say = Callable[[str, int, int], None]  # what is done, how much of how much; may raise to give up
# Of what is asked: what is found, each time more than before.
Work = Callable[[Any, "Entry", Say], Generator[Any, None, None]]
SIDES: dict[Side, str] = {"before": "As it is", "after": "Rows zeroed"}
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


@dataclass(frozen=True)
class Request:
    """What to try. label: the settings in words. weights_hash: of the weights that the rows belong to.
    edit: that the rows were made by, None for ticked ones. control: random rows beside an edit, which nobody chose and
    nobody can keep: what they do to refusal is not measured before they are shown."""

    model: str
    label: str
    mask_of: Callable[[Entry, Say], Mask] = field(compare=False)
    prompt: str = ""  # empty: only the NLL
    reply_tokens: int = 40
    weights_hash: str | None = None
    edit: Edit | None = None
    control: bool = False


@dataclass
class Trial:
    """One try, as far as it came."""

    rows: int
    change: measure.NllChange
    effect: str = ""
    texts: dict[Side, str] = field(default_factory=lambda: dict.fromkeys(SIDES, ""))
    outcomes: dict[Side, live.Outcome[Side]] = field(default_factory=dict)
    complete: bool = False


def trial(key: str, button: str, request: Request | None) -> None:
    """The button, and the last try of this session of what is asked under `key`. request: None = nothing to try yet."""
    question = None if request is None else Question(request.model, request.weights_hash, request)
    ask(key, question, _work, _show, st.container(key=f"{key}-trial"), button=button)


def _work(request: Request, entry: Entry, say: Say) -> Generator[Trial, None, None]:
    mask = request.mask_of(entry, say)
    now = Trial(len(mask), measure.nll_change(entry.loaded, mask, say))
    yield now
    if request.prompt.strip():
        if not request.control:
            now.effect = effects.in_words(effects.checked_effect(entry, mask, request.edit, say))
        removed: dict[Side, Mask] = {"before": NO_ROWS, "after": mask}
        written = live.replies(
            entry.loaded, removed, request.prompt, request.reply_tokens,
            on_wait=lambda seconds: say(f"Another session is using this model ({seconds:.0f} s)", 0, 1),
        )  # fmt: skip
        with closing(written) as events:
            for event in events:
                live.keep(event, now.texts, now.outcomes)
                yield now
    now.complete = True
    yield now


def _show(request: Request, now: Trial, whole: bool) -> None:
    if whole:
        state = "" if now.complete else " — stopped; the model's weights are back as they were"
        prompt = f"Prompt: {request.prompt}" if request.prompt else ""
        sentences = [f"{request.label}: {now.rows:,} rows zeroed{state}.", now.effect, prompt]
        st.caption(layout.plain(" ".join(filter(None, sentences))))
    change = now.change
    error = f" ± {change.stderr:.4f}" if change.stderr is not None else ""
    with st.container(horizontal=True):
        st.metric("Perplexity as it is", formats.perplexity(change.dense))
        st.metric("Perplexity, rows zeroed", formats.perplexity(change.edited))
        st.metric(
            "NLL difference", f"{change.difference:+.4f}{error}".replace("-", "−"),
            help=f"Nats per token over {change.tokens:,} tokens of the shipped evaluation text, with its standard "
            f"error over blocks of windows. As it is {change.dense:.4f}, with the rows zeroed {change.edited:.4f}.",
        )  # fmt: skip
    if not any(now.texts.values()) and not now.outcomes:
        return
    for (side, title), column in zip(SIDES.items(), st.columns(len(SIDES)), strict=True):
        with column.container(border=True, height="stretch"):
            st.markdown(f"#### {title}")
            layout.reply(now.texts[side], st.container(), empty=" ")
            if side in now.outcomes:
                outcome = now.outcomes[side]
                margin = "" if outcome.margin is None else f"margin {outcome.margin:+.2f}".replace("-", "−")
                verdict = layout.verdict(outcome.refusal, outcome.judged)
                st.caption(" · ".join(filter(None, (verdict, margin, stamps.facts(outcome)))))
