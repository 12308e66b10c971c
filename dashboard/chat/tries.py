"""Tries of the live page: what was asked, what came out, and a session of them as a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import polars as pl

from dashboard.chat import stamps
from dashboard.chat.edits import Edit
from dashboard.chat.live import SIDES, Outcome, Side
from dashboard.state import shipped
from engine.records.environment import environment

KEPT = 100  # tries of a session
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

    def why_broken(self, outcome: Outcome[Side]) -> str:
        """Why a reply counts as broken, "" where it does not, or where nothing is known to compare it with."""
        if self.broken and outcome.side == "after":
            return self.broken
        return stamps.why_broken(outcome, self.reference)

    def stamp(self, outcome: Outcome[Side]) -> str:
        return stamps.stamp(outcome.refusal, outcome.judged, self.why_broken(outcome))

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
    }  # fmt: skip


def _reply(outcome: Outcome[Side], one: Try) -> dict[str, Any]:
    return {
        "text": outcome.text, "refusal": outcome.refusal, "judged": outcome.judged, "judge_reason": outcome.reason,
        "broken": one.why_broken(outcome) or None, "mean_log_probability": stamps.mean_of(outcome),
        "repetition": outcome.repeated, "margin": outcome.margin,
        "margins_along_reply": [{"token": token, "margin": margin} for token, margin in outcome.along],
        "tokens": outcome.tokens, "finished": outcome.finished, "elapsed_s": round(outcome.elapsed_s, 3),
    }  # fmt: skip


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
