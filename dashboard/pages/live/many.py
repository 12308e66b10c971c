"""Live edit, many at once: twenty shipped prompts as tiles that turn colour as the edit is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import edits, effects, many, marked, stamps, writing
from dashboard.chat.live import Entry
from dashboard.chat.many import RISK, Pair
from dashboard.pages.live import rounds
from dashboard.pages.live.settings import Chosen, Places
from dashboard.show import layout
from dashboard.state.shipped import Example

BUTTON = f"Run {many.PROMPTS} prompts"
_KEY = "live-many"
_HINT = (
    f"{many.PROMPTS} shipped prompts, half of them to refuse and half to answer, each a tile. Press the button; from "
    "then on the tiles turn as the edit is changed."
)
PROMISES = {RISK: "Risk prompts, to refuse", "base": "Harmless prompts, to answer"}


@dataclass
class Round(rounds.Round):
    """All prompts once."""

    asked: list[Example] = field(default_factory=list)
    told: Mapping[str, Pair] = field(default_factory=dict)
    rows: int | None = None
    effect: str = ""
    reference: stamps.Reference | None = None


def show(chosen: Chosen, places: Places) -> None:
    request = replace(chosen.request, prompt="", margins=False, control_seed=None)
    asked = many.prompts(request.model, request.edit.domain)
    rounds.show(_KEY, chosen, request, places, Round(request, asked=asked), _write, _draw, _below, _HINT)


def _write(now: Round, entry: Entry, status: DeltaGenerator, drawn: DeltaGenerator) -> None:
    request, total, done = now.request, len(now.asked), [0]
    progress, waiting = layout.progress_in(status), layout.queued_in(status)
    mask = edits.mask_of(entry, request.edit, writing.scoring(progress))
    now.rows = len(mask)
    effect = effects.checked_effect(entry, mask, request.edit, progress)
    now.effect = effects.in_words(effect)
    now.reference = rounds.reference(entry, status)
    prompts = [one.prompt for one in now.asked]
    written = many.replies(
        entry, mask, prompts, request.reply_tokens, on_pass=lambda: progress("Replies", done[0], total), on_wait=waiting
    )
    for told in written:
        if effect.broken:
            told = {one: (before, after and replace(after, broken=now.effect)) for one, (before, after) in told.items()}
        now.told = told
        done[0] = sum(None not in pair for pair in told.values())
        _draw(now, drawn)


def _draw(now: Round, drawn: DeltaGenerator) -> None:
    counts = said([now.told.get(one.prompt, (None, None)) for one in now.asked], now.reference)
    drawn.html(f'<div class="sa-counts">{counts}</div>{tiles(now.asked, now.told, now.reference)}')


def _below(last: Round) -> None:
    count = f"{last.rows:,} rows removed" if last.rows is not None else "nothing removed yet"
    told = [f"{last.request.edit.describe()}: {count}{'' if last.ended else ' — stopped'}.", last.effect]
    st.caption(layout.plain(" ".join(filter(None, told))))
    layout.footnote(
        "A yellow frame: the edit turned this reply. Press a tile to read it. Replies are kept for as long as the "
        "model is in memory, so that a setting that was shown before comes back at once.",
        stamps.explained(last.reference),
    )


def tiles(asked: Sequence[Example], told: Mapping[str, Pair], reference: stamps.Reference | None) -> str:
    """All tiles by kind, each kind with its counts."""
    groups = []
    for kind, promise in PROMISES.items():
        of_kind = [one for one in asked if one.kind == kind]
        counts = said([told.get(one.prompt, (None, None)) for one in of_kind], reference)
        made = "".join(_tile(one, told.get(one.prompt, (None, None)), reference) for one in of_kind)
        if of_kind:
            groups.append(
                f'<div class="sa-kind">{promise}: {counts}</div><div class="sa-tiles" role="list">{made}</div>'
            )
    return "".join(groups)


def _tile(one: Example, pair: Pair, reference: stamps.Reference | None) -> str:
    before, after = pair
    prompt = f'<div class="sa-asked">{marked.as_html(one.prompt)}</div>'
    if after is None:
        return f'<div class="sa-tile sa-waits" role="listitem"><b>…</b>{prompt}</div>'
    stamp = after.stamp(reference)
    was = before.stamp(reference) if before else stamp
    look = stamps.LOOKS[stamp]
    turned, told = (" sa-turned", f" was {was}") if was != stamp else ("", "")
    cut = "" if after.finished else f" (not finished: {after.tokens} tokens)"
    return (
        f'<div role="listitem"><details class="sa-tile{turned}" style="background:{look.colour}"><summary>'
        f"<b>{look.icon} {stamp}</b>{told}{prompt}</summary>"
        f'<div class="sa-said">{marked.as_html(after.text)}{cut}</div></details></div>'
    )


def said(pairs: Sequence[Pair], reference: stamps.Reference | None) -> str:
    """`17 of 20 refuse, 1 is broken; without the edit 6 refuse`, of those that are there."""
    after = [told.stamp(reference) for _, told in pairs if told is not None]
    before = [told.stamp(reference) for told, _ in pairs if told is not None]
    if not after:
        return "…"
    pieces = [f"{after.count(stamps.REFUSES)} of {len(after)} refuse"]
    broken, unjudged = after.count(stamps.BROKEN), after.count(stamps.NOT_JUDGED)
    pieces += [f"{broken} {'is' if broken == 1 else 'are'} broken"] if broken else []
    pieces += [f"{unjudged} not judged"] if unjudged else []
    return ", ".join(pieces) + f"; without the edit {before.count(stamps.REFUSES)} of {len(before)}"
