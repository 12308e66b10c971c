"""Live edit, many at once: twenty shipped prompts as tiles that turn colour as the edit is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import edits, effects, many, stamps, writing
from dashboard.chat.live import Entry
from dashboard.chat.many import Pair
from dashboard.chat.tries import Request
from dashboard.pages.live import rounds, tiles
from dashboard.pages.live.settings import Chosen
from dashboard.show import layout
from dashboard.state.shipped import Example

if TYPE_CHECKING:
    from engine.measures.fluency import Reference

BUTTON = f"Run {many.PROMPTS} prompts"
_KEY = "live-many"
_HINT = (
    f"{many.PROMPTS} shipped prompts, half of them to refuse and half to answer, each a tile. Press the button; from "
    "then on the tiles turn as the edit is changed."
)


@dataclass
class Round(rounds.Round):
    """All prompts once."""

    asked: list[Example] = field(default_factory=list)
    told: Mapping[str, Pair] = field(default_factory=dict)
    rows: int | None = None
    effect: str = ""
    reference: Reference | None = None


def show(chosen: Chosen, places: rounds.Places) -> None:
    """The tiles."""
    request = replace(chosen.request, prompt="", margins=False, control_seed=None)
    rounds.show(_KEY, chosen, request, places, _begin, _write, _draw, _below, _HINT)


def _begin(request: Request) -> Round:
    return Round(request, asked=many.prompts(request.model, request.edit.domain))


def _write(now: Round, entry: Entry, status: DeltaGenerator, drawn: DeltaGenerator) -> None:
    request, total, done = now.request, len(now.asked), [0]
    progress, waiting = layout.progress_in(status), layout.queued_in(status)

    def passing() -> None:
        progress("Replies", done[0], total)

    mask = edits.mask_of(entry, request.edit, writing.scoring(progress))
    now.rows = len(mask)
    effect = effects.checked_effect(entry, mask, request.edit, progress)
    now.effect = effects.in_words(effect)
    now.reference = rounds.reference(entry, status)
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


def _below(last: Round) -> None:
    count = f"{last.rows:,} rows removed" if last.rows is not None else "nothing removed yet"
    told = [f"{last.request.edit.describe()}: {count}{'' if last.ended else ' — stopped'}.", last.effect]
    st.caption(layout.plain(" ".join(filter(None, told))))
    layout.footnote(
        "A yellow frame: the edit turned this reply. Press a tile to read it. Replies are kept for as long as the "
        "model is in memory, so that a setting that was shown before comes back at once.",
        stamps.explained(last.reference),
    )
