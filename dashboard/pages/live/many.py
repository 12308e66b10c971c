"""Live edit, many at once: twenty shipped prompts as tiles that turn colour as the edit is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import streamlit as st

from dashboard.chat import edits, effects, fetching, many, stamps, writing
from dashboard.chat.many import Pair
from dashboard.chat.tries import Request
from dashboard.pages.live import tiles
from dashboard.pages.live.settings import Chosen
from dashboard.show import layout
from dashboard.state.shipped import Example
from engine.records.errors import InputError

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from dashboard.chat.live import Entry
    from engine.measures.fluency import Reference

BUTTON = f"Run {many.PROMPTS} prompts"
_KEY = "live-many"  # of what waits for a download
SHOWN = "live-many-shown"  # session state: the round on the page


@dataclass(frozen=True)
class Places:
    """Where progress, Stop, downloads, the tiles and what is below them stand."""

    status: DeltaGenerator
    stop: DeltaGenerator
    bars: DeltaGenerator
    tiles: DeltaGenerator
    below: DeltaGenerator


@dataclass
class Round:
    """All prompts once, kept in the session while they are answered, so that a stopped round still shows what came."""

    request: Request
    asked: list[Example]
    told: Mapping[str, Pair] = field(default_factory=dict)
    rows: int | None = None
    effect: str = ""
    reference: Reference | None = None
    ended: bool = False
    problem: str = ""


def show(chosen: Chosen, places: Places) -> None:
    """The tiles. Once a round is there, every change of the edit asks for the next one."""
    request = replace(chosen.request, prompt="", margins=False, control_seed=None)
    last: Round | None = st.session_state.get(SHOWN)
    if last is not None and last.request.model != request.model:
        last = None
    changed = last is not None and last.request != request
    now = (
        Round(request, many.prompts(request.model, request.edit.domain))
        if chosen.possible and (chosen.pressed or changed)
        else None
    )
    job = fetching.due(_KEY, now)
    if job is not None:
        st.session_state[SHOWN] = last = job
    with places.tiles:
        drawn = st.empty()
    if job is not None:
        _run(job, places, drawn)
    if fetching.under_way(_KEY, places.bars, of_all=True):
        places.status.empty()
    elif last is None:
        places.status.caption(
            f"{many.PROMPTS} shipped prompts, half of them to refuse and half to answer, each a tile. Press the "
            "button; from then on the tiles turn as the edit is changed."
        )
    else:
        _draw(last, drawn)
        _below(last, places)


def _run(now: Round, places: Places, drawn: DeltaGenerator) -> None:
    places.stop.button("Stop", key="stop-many")  # any click ends this script run at its next output
    try:
        with fetching.model(_KEY, now.request.model, now, places.status.caption) as entry:
            _write(now, entry, places.status, drawn)
    except fetching.Downloading:
        places.stop.empty()  # the bar has its own
        return
    except InputError as error:
        now.problem = str(error)
    now.ended = True
    places.status.empty()
    places.stop.empty()


def _write(now: Round, entry: Entry, status: DeltaGenerator, drawn: DeltaGenerator) -> None:
    request, total, done = now.request, len(now.asked), [0]

    progress, waiting = layout.progress_in(status), layout.queued_in(status)

    def passing() -> None:
        progress("Replies", done[0], total)

    def comparing() -> None:
        status.caption("Once for this model: its own replies to the example prompts …")

    mask = edits.mask_of(entry, request.edit, writing.scoring(progress))
    now.rows = len(mask)
    effect = effects.checked_effect(entry, mask, request.edit, progress)
    now.effect = effects.in_words(effect)
    now.reference = stamps.reference_of(entry, comparing, waiting)
    prompts = [one.prompt for one in now.asked]
    for told in many.replies(entry, mask, prompts, request.reply_tokens, on_pass=passing, on_wait=waiting):
        if effect.broken:
            told = {one: (before, after and replace(after, broken=now.effect)) for one, (before, after) in told.items()}
        now.told = told
        done[0] = sum(None not in pair for pair in told.values())
        _draw(now, drawn)


def _draw(now: Round, drawn: DeltaGenerator) -> None:
    counts = tiles.said([now.told.get(one.prompt, (None, None)) for one in now.asked], now.reference)
    drawn.html(f'{tiles.STYLE}<div class="sa-counts">{counts}</div>{tiles.tiles(now.asked, now.told, now.reference)}')


def _below(last: Round, places: Places) -> None:
    if last.problem:
        places.status.warning(layout.worded(last.problem))
        return
    with places.below:
        count = f"{last.rows:,} rows removed" if last.rows is not None else "nothing removed yet"
        told = [f"{last.request.edit.describe()}: {count}{'' if last.ended else ' — stopped'}.", last.effect]
        st.caption(layout.plain(" ".join(filter(None, told))))
        layout.footnote(
            "A yellow frame: the edit turned this reply. Press a tile to read it. Replies are kept for as long as the "
            "model is in memory, so that a setting that was shown before comes back at once.",
            stamps.explained(last.reference),
        )
