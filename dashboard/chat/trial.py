"""Zero some rows of a model in memory and show what changes: NLL, and the reply to a prompt."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field

import streamlit as st

from dashboard.charts import formats
from dashboard.chat import answers, effects, live, measure, stamps
from dashboard.chat.answers import Say
from dashboard.chat.edits import Edit
from dashboard.chat.live import Entry, Side
from dashboard.chat.writing import NO_ROWS
from dashboard.show import layout
from engine.edits.masks import Mask

SIDES: dict[Side, str] = {"before": "As it is", "after": "Rows zeroed"}


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
    question = None if request is None else answers.Question(request.model, request.weights_hash, request)
    answers.ask(key, question, _work, _show, st.container(key=f"{key}-trial"), button=button)


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
        told = [f"{request.label}: {now.rows:,} rows zeroed{state}.", now.effect, prompt]
        st.caption(layout.plain(" ".join(filter(None, told))))
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
