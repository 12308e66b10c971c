"""Zero some rows of a model in memory and show what changes: NLL, and the reply to a prompt.

A part that pages put below their settings: a button, its result, and nothing but the result on later runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import streamlit as st

from dashboard.charts import formats
from dashboard.chat import effects, fetching, live, measure
from dashboard.chat.live import Side
from dashboard.chat.side_by_side import Panels
from dashboard.show import layout
from engine.records.errors import InputError

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from dashboard.chat.edits import Edit
    from dashboard.chat.live import Entry
    from engine.edits.masks import Mask

SIDES: dict[Side, str] = {"before": "As it is", "after": "Rows zeroed"}
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """What to try. label: the settings in words. weights_hash: of the weights that the rows belong to.

    edit: that the rows were made by, None for ticked ones. control: random rows beside an edit, which nobody chose and
    nobody can keep: what they do to refusal is not measured before they are shown.
    """

    model: str
    label: str
    mask_of: Callable[[Entry, Progress], Mask]
    prompt: str = ""  # empty: only the NLL
    reply_tokens: int = 40
    weights_hash: str | None = None
    edit: Edit | None = None
    control: bool = False


@dataclass
class Trial:
    """One try, kept in the session while it runs, so that a stopped one still shows what was there."""

    label: str
    prompt: str
    rows: int | None = None
    effect: str = ""
    change: measure.NllChange | None = None
    texts: dict[Side, str] = field(default_factory=lambda: dict.fromkeys(SIDES, ""))
    outcomes: dict[Side, live.Outcome[Side]] = field(default_factory=dict)
    ended: bool = False
    problem: str = ""


def trial(key: str, button: str, request: Request | None) -> Trial | None:
    """The button, and the last try of this session under `key`. request: None = nothing to try yet."""
    name = f"trial-{key}"
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button(button, type="primary", key=f"{key}-run", disabled=request is None)
        stop = st.empty()
    place = _Place(key, st.empty(), st.container())
    job = fetching.due(key, request if pressed else None)
    if job is not None:
        now = Trial(job.label, job.prompt)
        st.session_state[name] = now
        stop.button("Stop", key=f"{key}-stop")  # any click ends this script run at its next output
        try:
            with loaded_model(key, job.model, job.weights_hash, job, place.status.caption) as entry:
                _measure(now, job, place, entry)
            now.ended = True
        except fetching.Downloading:
            pass  # it begins again when the model is here
        except InputError as error:
            now.problem, now.ended = str(error), True
        stop.empty()
    if fetching.under_way(key, place.status):
        return None
    last: Trial | None = st.session_state.get(name)
    if last is not None:
        place.show(last)
    return last


@contextmanager
def loaded_model(
    key: str, model: str, weights_hash: str | None, job: object, say: Callable[[str], Any]
) -> Iterator[Entry]:
    """The model, as `fetching.model` gives it; `InputError` where its weights are not those with `weights_hash`."""
    with fetching.model(key, model, job, say) as entry:
        if weights_hash not in (None, entry.loaded.weights_hash):
            raise InputError(
                f"{model} has weights {entry.loaded.weights_hash[:12]}, the scores were computed from "
                f"{str(weights_hash)[:12]}; compute them again for this model with `selector-audit score`"
            )
        yield entry


def _measure(now: Trial, request: Request, place: _Place, entry: Entry) -> None:
    progress = layout.progress_in(place.status)
    mask = request.mask_of(entry, progress)
    now.rows = len(mask)
    now.change = measure.nll_change(entry.loaded, mask, progress)
    place.numbers(now.change)
    if not request.prompt.strip():
        return
    if not request.control:
        now.effect = effects.in_words(effects.checked_effect(entry, mask, request.edit, progress))
    place.panels().follow(
        lambda waiting: live.replies(entry.loaded, mask, request.prompt, request.reply_tokens, on_wait=waiting),
        place.status, now.texts, now.outcomes,
    )  # fmt: skip


class _Place:
    """Where a try is shown: status line, numbers, the two replies beside each other as plain text."""

    def __init__(self, key: str, status: DeltaGenerator, below: DeltaGenerator) -> None:
        self.status, self._key, self._below = status, key, below
        self._measured = False
        self._panels: Panels | None = None

    def numbers(self, change: measure.NllChange) -> None:
        if self._measured:
            return
        self._measured = True
        error = f" ± {change.stderr:.4f}" if change.stderr is not None else ""
        with self._below.container(horizontal=True, key=f"{self._key}-numbers"):
            st.metric("Perplexity as it is", formats.perplexity(change.dense))
            st.metric("Perplexity, rows zeroed", formats.perplexity(change.edited))
            st.metric(
                "NLL difference", f"{change.difference:+.4f}{error}".replace("-", "−"),
                help=f"Nats per token over {change.tokens:,} tokens of the shipped evaluation text, with its standard "
                f"error over blocks of windows. As it is {change.dense:.4f}, with the rows zeroed {change.edited:.4f}.",
            )  # fmt: skip

    def show(self, last: Trial) -> None:
        if last.problem:
            self.status.warning(layout.worded(last.problem))
        else:
            count = "nothing zeroed yet" if last.rows is None else f"{last.rows:,} rows zeroed"
            state = "" if last.ended else " — stopped; the model's weights are back as they were"
            told = [f"{last.label}: {count}{state}.", last.effect, f"Prompt: {last.prompt}" if last.prompt else ""]
            self.status.caption(layout.plain(" ".join(filter(None, told))))
        if last.change is not None:
            self.numbers(last.change)
        for side, text in last.texts.items():
            if text or side in last.outcomes:
                self.panels().write(side, text)
            if side in last.outcomes:
                self.panels().tell(last.outcomes[side])

    def panels(self) -> Panels:
        """Made once there is something to show."""
        if self._panels is None:
            with self._below:
                self._panels = Panels(SIDES, self._key)
        return self._panels
