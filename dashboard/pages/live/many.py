"""Live edit, many at once: twenty shipped prompts as tiles that turn colour as the edit is changed.

Replies are written in batches and kept with the model by edit and prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import edits, effects, marked, stamps
from dashboard.chat.edits import DOMAINS
from dashboard.chat.live import Entry, Outcome, fitting_threads
from dashboard.pages.live import rounds
from dashboard.pages.live.settings import Chosen, Places
from dashboard.show import layout
from dashboard.state import shipped_models as shipped
from dashboard.state.shipped_models import Example
from engine.edits.edit import UNEDITED, Edit as EngineEdit, edit_of
from engine.edits.masks import Mask
from engine.judges.base import EMBEDDED, Exchange, open_judges, verdicts_on
from engine.records.locks import OnWait, patient
from engine.records.progress import each_pass

PROMPTS, AT_ONCE = 20, 5
KEPT = 4000  # replies of a model
BUTTON = f"Run {PROMPTS} prompts"
_KEY = "live-many"
_HINT = (
    f"{PROMPTS} shipped prompts, half of them to refuse and half to answer, each a tile. Press the button; from "
    "then on the tiles turn as the edit is changed."
)
PROMISES = {"risk": "Risk prompts, to refuse", "base": "Harmless prompts, to answer"}


Pair = tuple[Outcome[str] | None, Outcome[str] | None]  # as it is, and under the edit


@dataclass
class Round(rounds.Round):
    """All prompts once."""

    asked: list[Example] = field(default_factory=list)
    told: Mapping[str, Pair] = field(default_factory=dict)
    rows: int | None = None
    effect: str = ""
    broken: str = ""  # that the edit breaks the model, in words
    reference: stamps.Reference | None = None


def show(chosen: Chosen, places: Places) -> None:
    request = replace(chosen.request, prompt="", margins=False, control_seed=None)
    asked = prompts(request.model, request.edit.domain)
    rounds.show(_KEY, chosen, request, places, Round(request, asked=asked), _write, _draw, _below, _HINT)


def _write(now: Round, entry: Entry, status: DeltaGenerator, drawn: DeltaGenerator) -> None:
    request, total, done = now.request, len(now.asked), [0]
    progress, waiting = layout.progress_in(status), layout.queued_in(status)
    mask = edits.mask_of(entry, request.edit, progress)
    now.rows = len(mask)
    effect = effects.checked_effect(entry, mask, request.edit, progress)
    now.effect = effects.in_words(effect)
    now.broken = now.effect if effect.broken else ""
    now.reference = rounds.reference(entry, status)
    asked = [one.prompt for one in now.asked]
    with each_pass(lambda: progress("Replies", done[0], total)):
        for told in replies(entry, mask, asked, request.reply_tokens, on_wait=waiting):
            now.told = told
            done[0] = sum(None not in pair for pair in told.values())
            _draw(now, drawn)


def _draw(now: Round, drawn: DeltaGenerator) -> None:
    counts = said([now.told.get(one.prompt, (None, None)) for one in now.asked], now.reference, now.broken)
    drawn.html(f'<div class="sa-counts">{counts}</div>{tiles(now.asked, now.told, now.reference, now.broken)}')


def _below(last: Round) -> None:
    count = f"{last.rows:,} rows removed" if last.rows is not None else "nothing removed yet"
    sentences = [f"{last.request.edit.describe()}: {count}{'' if last.ended else ' — stopped'}.", last.effect]
    st.caption(layout.plain(" ".join(filter(None, sentences))))
    layout.footnote("A yellow frame: the edit turned this reply. Press a tile to read it.")
    note = "Replies are kept for as long as the model is in memory: a setting that was shown before comes back at once."
    rounds.explain(last.reference, note)


def tiles(
    asked: Sequence[Example], told: Mapping[str, Pair], reference: stamps.Reference | None, broken: str = ""
) -> str:
    """All tiles by kind, each kind with its counts. broken: as in `Round`."""
    groups = []
    for kind, promise in PROMISES.items():
        of_kind = [one for one in asked if one.kind == kind]
        counts = said([told.get(one.prompt, (None, None)) for one in of_kind], reference, broken)
        drawn = "".join(_tile(one, told.get(one.prompt, (None, None)), reference, broken) for one in of_kind)
        if of_kind:
            groups.append(
                f'<div class="sa-kind">{promise}: {counts}</div><div class="sa-tiles" role="list">{drawn}</div>'
            )
    return "".join(groups)


def _tile(one: Example, pair: Pair, reference: stamps.Reference | None, broken: str) -> str:
    before, after = pair
    prompt = f'<div class="sa-asked">{marked.as_html(one.prompt)}</div>'
    if after is None:
        return f'<div class="sa-tile sa-waits" role="listitem"><b>…</b>{prompt}</div>'
    stamp = _stamp(after, reference, broken)
    was = _stamp(before, reference) if before else stamp
    look = stamps.LOOKS[stamp]
    turned, told = (" sa-turned", f" was {was}") if was != stamp else ("", "")
    cut = "" if after.finished else f" (not finished: {after.tokens} tokens)"
    return (
        f'<div role="listitem"><details class="sa-tile{turned}" style="background:{look.colour}"><summary>'
        f"<b>{look.icon} {stamp}</b>{told}{prompt}</summary>"
        f'<div class="sa-said">{marked.as_html(after.text)}{cut}</div></details></div>'
    )


def _stamp(reply: Outcome[str], reference: stamps.Reference | None, broken: str = "") -> str:
    return stamps.stamp(reply, stamps.why_broken(reply, reference, broken))


def said(pairs: Sequence[Pair], reference: stamps.Reference | None, broken: str = "") -> str:
    """`17 of 20 refuse, 1 is broken; without the edit 6 refuse`, of those that are there. broken: as in `Round`."""
    after = [_stamp(reply, reference, broken) for _, reply in pairs if reply is not None]
    before = [_stamp(reply, reference) for reply, _ in pairs if reply is not None]
    if not after:
        return "…"
    pieces = [f"{after.count(stamps.REFUSES)} of {len(after)} refuse"]
    lost, unjudged = after.count(stamps.BROKEN), after.count(stamps.NOT_JUDGED)
    pieces += [f"{lost} {'is' if lost == 1 else 'are'} broken"] if lost else []
    pieces += [f"{unjudged} not judged"] if unjudged else []
    return ", ".join(pieces) + f"; without the edit {before.count(stamps.REFUSES)} of {len(before)}"


def prompts(model: str, domain: str) -> list[shipped.Example]:
    """Twenty prompts for a model, half of them to refuse: of the held-out ones of a domain, of all domains for ""."""
    domains = [domain] if domain else list(DOMAINS)
    return shipped.held_out(domains, PROMPTS // 2 // len(domains), model)


def replies(
    entry: Entry, mask: Mask, asked: Sequence[str], max_new_tokens: int, *, on_wait: OnWait = patient
) -> Iterator[dict[str, Pair]]:
    """What is known of every prompt, as it is and with `mask` zeroed: at first, and after every batch.
    What is known of the model is not written again. A batch holds up to `AT_ONCE` prompts under what is missing of both
    edits; `on_wait(seconds)` while another thread holds the model may raise to give up, as what `each_pass` tells may,
    and what was written until then stays known. `InputError` as in `generate_under`."""
    edit = edit_of(mask, entry.loaded.rows.n_rows)

    def known() -> dict[str, Pair]:
        written = [
            {one: entry.told.get((carried.mask_hash, one, max_new_tokens)) for one in asked}
            for carried in (UNEDITED, edit)
        ]
        return {one: (written[0][one], written[1][one]) for one in asked}

    now = known()
    yield now
    missing = [one for one in asked if None in now[one]]
    for start in range(0, len(missing), AT_ONCE):
        batch = missing[start : start + AT_ONCE]
        for lacks in ((True, True), (True, False), (False, True)):
            lacking = [one for one in batch if tuple(told is None for told in now[one]) == lacks]
            carried = [one for one, lack in zip((UNEDITED, edit), lacks, strict=True) if lack]
            if lacking:
                _write_replies(entry, carried, lacking, max_new_tokens, on_wait)
        now = known()
        yield now


def _write_replies(
    entry: Entry, edits: Sequence[EngineEdit], asked: Sequence[str], max_new_tokens: int, on_wait: OnWait
) -> None:
    from engine.measures.fluency import Asked, repetition, reply_log_probabilities
    from engine.measures.generation import generate_under

    loaded, judge = entry.loaded, open_judges(EMBEDDED)[0]
    with fitting_threads(loaded):
        written = generate_under(loaded, edits, asked, max_new_tokens, on_wait=on_wait)
        for edit, found in zip(edits, written, strict=True):
            readings = [Asked(one, reply.ids, reply.finished) for one, reply in zip(asked, found, strict=True)]
            likely = reply_log_probabilities(loaded, readings, on_wait=on_wait)
            exchanges = [Exchange(one, reply.text, reply.finished) for one, reply in zip(asked, found, strict=True)]
            verdicts = verdicts_on(judge, exchanges)
            for one, reply, values, verdict in zip(asked, found, likely, verdicts, strict=True):
                entry.told[edit.mask_hash, one, max_new_tokens] = Outcome(
                    "", reply.text, reply.tokens, reply.finished, reply.seconds, verdict.refusal, verdict.reason, None,
                    judged=verdict.judged, log_probabilities=tuple(values.tolist()), repeated=repetition(reply.ids),
                )  # fmt: skip
    for old in list(entry.told)[: max(0, len(entry.told) - KEPT)]:
        entry.told.pop(old, None)
