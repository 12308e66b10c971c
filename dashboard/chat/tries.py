"""Tries of the live page: what was asked, how it is written (its rows, what they do to refusal, its replies), what came
out, and a session of them as a file."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from dashboard.charts import formats, palette
from dashboard.chat import edits, effects, live, marked, stamps
from dashboard.chat.edits import Edit, Progress
from dashboard.chat.live import SIDES, Entry, Event, Outcome, Piece, Side, SideName, fitting_threads
from dashboard.state import shipped_models as shipped
from engine.edits.edit import mask_hash
from engine.edits.masks import Mask
from engine.records.hashing import environment
from engine.records.locks import OnWait, patient

KEPT = 100  # tries of a session
DRAWS = 5  # of random rows that the page counts, the control among them
QUANTILE = 0.01  # of the model's own prompts, that count as unlike them
REPLIES_KEPT = 500  # of a model
NO_ROWS: Mask = np.zeros(0, dtype=np.int64)
TITLES: dict[Side, str] = {"before": "Before", "after": "After", "control": "Control"}


@dataclass(frozen=True)
class Request:
    """The settings of a try. control_seed: of the random rows in the same layers, None without a control."""

    model: str
    edit: Edit
    prompt: str
    reply_tokens: int
    margins: bool = False
    control_seed: int | None = None

    @property
    def sides(self) -> tuple[Side, ...]:
        return SIDES if self.control_seed is not None else SIDES[:2]

    @property
    def core(self) -> tuple[object, ...]:
        """What a try is about: all but the control and the margins."""
        return self.model, self.edit, self.prompt, self.reply_tokens


@dataclass
class Try:
    """One try, kept in the session while it is written, so that a stopped one still shows what was there."""

    request: Request
    texts: dict[Side, str] = field(default_factory=lambda: dict.fromkeys(SIDES, ""))
    outcomes: dict[Side, Outcome[Side]] = field(default_factory=dict)
    removed: pl.DataFrame | None = None  # projection, removed, rows
    mask_sha256: str = ""
    effect: str = ""  # what the edit does to refusal, in words
    unlike: str = ""  # that the prompt is unlike what the model was trained on, in words; "" where it is not
    broken: str = ""  # that the edit breaks the model, in words; "" where it does not
    model: dict[str, Any] = field(default_factory=dict)  # as in a manifest
    control_seed: int | None = None  # of the control that was written
    draws: list[Outcome[Any]] = field(default_factory=list)  # without random rows of the next seeds
    drawn: bool = False  # was it tried to write these?
    reference: stamps.Reference | None = None  # what says whether a reply is broken
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    ended: bool = False
    problem: str = ""

    @property
    def complete(self) -> bool:
        """Did every side it asked for write its reply to the end?"""
        return self.ended and not self.problem and all(side in self.outcomes for side in self.request.sides)

    @property
    def rows_removed(self) -> int | None:
        return int(self.removed["removed"].sum()) if self.removed is not None else None

    def why_broken(self, outcome: Outcome[Any]) -> str:
        """Why a reply counts as broken, "" where it does not, or where nothing is known to compare it with."""
        return stamps.why_broken(outcome, self.reference, self.broken if outcome.side == "after" else "")

    def stamp(self, outcome: Outcome[Any]) -> str:
        word = stamps.stamp(outcome, self.why_broken(outcome))
        before = self.outcomes.get("before")
        if word != stamps.ANSWERS or before is None or before is outcome or self.stamp(before) != stamps.ANSWERS:
            return word
        return word if marked.alike(before.text, outcome.text) else stamps.OTHERWISE

    def about(self, request: Request) -> bool:
        """Is this a complete try of the same edit and prompt? Control and margins may differ."""
        return self.complete and self.request.core == request.core

    def missing(self, request: Request) -> tuple[Side, ...]:
        """Sides that `request` wants and this try, which is `about` it, has not.
        A control with another seed, and a side without the margins that are asked for, count as missing."""

        def lacks(side: Side) -> bool:
            outcome = self.outcomes.get(side)
            if outcome is None or (side == "control" and request.control_seed != self.control_seed):
                return True
            return request.margins and not outcome.along and outcome.margin is not None

        return tuple(filter(lacks, request.sides))


def record(one: Try) -> dict[str, Any]:
    """A try as plain data: settings, replies with verdict and margins, rows removed, the model."""
    request, reference = one.request, one.reference
    return {
        "began": one.began, "model": one.model or {"id": request.model}, "prompt": request.prompt,
        "edit": asdict(request.edit), "reply_tokens": request.reply_tokens, "control_seed": one.control_seed,
        "rows_removed": one.rows_removed,
        "rows_removed_by_projection": one.removed.to_dicts() if one.removed is not None else None,
        "mask_sha256": one.mask_sha256 or None, "effect_on_refusal": one.effect or None, "complete": one.complete,
        "broken_below_nats_per_token": reference.lowest if reference else None,
        "broken_above_repetition": reference.most if reference else None,
        "replies": {side: _reply(one.outcomes[side], one) for side in SIDES if side in one.outcomes},
        "further_draws": [{"seed": int(outcome.side), **_reply(outcome, one)} for outcome in one.draws],
    }  # fmt: skip


def _reply(outcome: Outcome[Any], one: Try) -> dict[str, Any]:
    return {
        "text": outcome.text, "refusal": outcome.refusal, "judged": outcome.judged, "judge_reason": outcome.reason,
        "broken": one.why_broken(outcome) or None, "mean_log_probability": stamps.mean_of(outcome),
        "repetition": outcome.repeated, "margin": outcome.margin,
        "margins_along_reply": [{"token": token, "margin": margin} for token, margin in outcome.along],
        "tokens": outcome.tokens, "finished": outcome.finished, "elapsed_s": round(outcome.elapsed_s, 3),
    }  # fmt: skip


_DOES = {
    stamps.ANSWERS: "answers", stamps.OTHERWISE: "answers otherwise", stamps.REFUSES: "refuses",
    stamps.BROKEN: "writes broken text",
}  # fmt: skip


def told(one: Try) -> str:
    """What the model does with the prompt after the edit, and without random rows, of these in how many of the draws
    once all are written; "" where that is not known, or says nothing."""
    does = {side: _DOES.get(one.stamp(outcome), "") for side, outcome in one.outcomes.items()}
    edit, before = one.request.edit, does.get("before")

    def now(side: Side) -> str:
        return f"it {'still ' * (does[side] == before)}{does[side]}"

    if not (one.ended and before and does.get("after")) or one.problem or one.unlike:
        return ""
    end = "lowest" if edit.order == "lerf" else "highest"
    rows = f"Without {palette.title(edit.selector)}'s {end} {formats.rate(edit.rate)}" if edit.order else "Edited,"
    if not does.get("control"):
        return f"{rows} {now('after')}"
    drawn = [one.stamp(outcome) for outcome in [one.outcomes["control"], *one.draws]]
    often = f"in {drawn.count(drawn[0])} of {DRAWS} draws" if len(drawn) == DRAWS else "in one draw"
    return f"{rows} {now('after')}; without as many random rows {now('control')} {often}"


def session_json(tries: list[Try]) -> str:
    """All tries of a session with the software they were made with."""
    whole = {
        "format": "selector-audit live session", "version": 1,
        "written": datetime.now(UTC).isoformat(timespec="seconds"), "environment": environment(),
        "tries": [record(one) for one in tries],
    }  # fmt: skip
    return json.dumps(whole, indent=2, ensure_ascii=False)


def comparison(tries: list[Try]) -> pl.DataFrame:
    """Tries side by side for people: verdict and margin of every side. Newest first."""
    rows = []
    for number, one in reversed(list(enumerate(tries, start=1))):
        request = one.request
        row = {
            "Try": number, "Model": shipped.title_of(request.model), "Edit": request.edit.describe(),
            "Prompt": request.prompt, "Rows": one.rows_removed,
        }  # fmt: skip
        for side in SIDES:
            outcome = one.outcomes.get(side)
            row[TITLES[side]] = verdict(outcome, one.why_broken(outcome)) if outcome else "–"
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def verdict(outcome: Outcome[Side], broken: str = "") -> str:
    """`refuses, margin +1.20, cut off`; `broken, …` where it says why."""
    margin = "" if outcome.margin is None else f", margin {outcome.margin:+.2f}".replace("-", "−")
    return ("broken" if broken else outcome.verdict) + margin + ("" if outcome.finished else ", cut off")


def batches(now: Try, entry: Entry, wanted: Sequence[Side], progress: Progress) -> Iterator[dict[Side, Mask]]:
    """The rows without which to write, in turn: Before at once, After and the control once it is known what the edit
    does; `InputError` where it lowers refusal: then neither of these is written."""
    if "before" in wanted:
        yield {"before": NO_ROWS}
        now.unlike = unlike(entry, now.request.prompt)
    seed = now.request.control_seed
    mask = edits.mask_of(entry, now.request.edit, progress)
    now.removed = edits.removed_per_projection(entry, mask)
    now.mask_sha256, now.model = mask_hash(mask), dict(entry.loaded.fingerprint)
    edited: dict[Side, Mask] = {"after": mask} if "after" in wanted else {}
    if "control" in wanted and seed is not None:
        edited["control"] = edits.control_of(entry, mask, seed)
    if edited:
        effect = effects.checked_effect(entry, mask, now.request.edit, progress)
        now.effect = effects.in_words(effect)
        now.broken = effect.on_text() if effect.broken else ""
        now.control_seed = seed if "control" in edited else now.control_seed
        yield edited


def replies(
    now: Try, entry: Entry, removed: Mapping[Side, Mask], on_wait: OnWait = patient
) -> Generator[Event, None, None]:
    request = now.request
    return batch(entry, removed, request.prompt, request.reply_tokens, margins=request.margins, on_wait=on_wait)


def further_draws(now: Try, entry: Entry, on_wait: OnWait = patient) -> Generator[None, None, None]:
    """Writes the replies without the rows of the next seeds after the control's, in one batch; yields as they come."""
    mask, first = edits.mask_of(entry, now.request.edit, lambda *_: None), now.control_seed or 0
    removed = {str(seed): edits.control_of(entry, mask, seed) for seed in range(first + 1, first + DRAWS)}
    now.draws.clear()
    with closing(batch(entry, removed, now.request.prompt, now.request.reply_tokens, on_wait=on_wait)) as events:
        for event in events:
            if isinstance(event, Outcome):
                now.draws.append(event)
            yield


def batch(
    entry: Entry, removed: Mapping[SideName, Mask], prompt: str, tokens: int, *, margins: bool = False,
    on_wait: OnWait = patient,
) -> Generator[Piece[SideName] | Outcome[SideName], None, None]:  # fmt: skip
    """The replies to a prompt without these rows: those that the model gave before at once, the others as they are
    written, in one batch."""
    keys = {side: (mask_hash(rows), prompt, tokens, margins) for side, rows in removed.items()}
    for side, key in keys.items():
        if key in entry.outcomes:
            yield Piece(side, entry.outcomes[key].text)
            yield replace(entry.outcomes[key], side=side)
    missing = {side: rows for side, rows in removed.items() if keys[side] not in entry.outcomes}
    if not missing:
        return
    with closing(
        live.replies(entry.loaded, missing, prompt, tokens, margins_along=margins, likelihoods=True, on_wait=on_wait)
    ) as events:
        for event in events:
            if isinstance(event, Outcome):
                entry.outcomes[keys[event.side]] = event
            yield event
    for old in list(entry.outcomes)[: max(0, len(entry.outcomes) - REPLIES_KEPT)]:
        entry.outcomes.pop(old, None)


def limit_of(entry: Entry) -> float | None:
    """The `QUANTILE` of `prompt_log_probabilities` of its own held-out prompts, measured once for as long as it is in
    memory; None of a model without any.
    Measured on the demo: -10.8 nats per word; below are none of its 36 example prompts, 18% of the 240 general shipped
    ones, and 3 of the 5 `GENERAL_QUESTIONS`."""
    from engine.measures.fluency import prompt_log_probabilities

    if not entry.prompt_limit:
        prompts = shipped.own_prompts(entry.loaded.id)
        with fitting_threads(entry.loaded):
            means = prompt_log_probabilities(entry.loaded, prompts) if prompts else []
        entry.prompt_limit.append(float(np.quantile(means, QUANTILE)) if means else None)
    return entry.prompt_limit[0]


def unlike(entry: Entry, prompt: str) -> str:
    """That a prompt is less likely than the limit, in words; "" where it is not, or where there is none."""
    from engine.measures.fluency import prompt_log_probabilities

    limit = limit_of(entry)
    if limit is None:
        return ""
    with fitting_threads(entry.loaded):
        [mean] = prompt_log_probabilities(entry.loaded, [prompt])
    if mean >= limit:
        return ""
    own, here = (f"{value:.1f}".replace("-", "−") for value in (limit, mean))
    return (
        f"Unlike its training: {here} nats per word as it is, where {1 - QUANTILE:.0%} of its own held-out prompts "
        f"have more than {own}. What it replies says little."
    )
