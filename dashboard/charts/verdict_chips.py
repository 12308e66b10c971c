"""Verdicts as chips: selector x (faithful? stable? robust?), each a word and a colour, with the page of its proof."""

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dashboard.charts import palette
from engine.stats.limits import BASELINE
from engine.studies.verdict.removal_budgets import share_text

QUESTIONS = ("Faithful?", "Stable?", "Robust?")
YES, PARTLY, NO, UNKNOWN = ("✓", "green"), ("~", "orange"), ("✗", "red"), ("–", "gray")
_FAITHFUL = {
    "faithful": (YES, "faithful"), "sufficient": (PARTLY, "sufficient"), "partly": (PARTLY, "partly"),
    "not": (NO, "not faithful"),
}  # fmt: skip
_STABLE = {
    "stable": (YES, "stable"), "not": (NO, "not stable"), "not applicable": (UNKNOWN, "no text"),
    "unknown": (UNKNOWN, "not known"),
}  # fmt: skip
_ROBUST = {
    "exact": (YES, "robust"), "rounding": (YES, "robust"), "moved": (NO, "not robust"),
    "unknown": (UNKNOWN, "not known"),
}  # fmt: skip
NOT_MEASURED = (UNKNOWN, "not measured")


@dataclass(frozen=True)
class Chip:
    """An answer. sign and word say what the colour says; path, parameters: the page of the evidence."""

    question: str
    sign: str
    colour: str
    word: str
    path: str
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def markdown(self) -> str:
        """As a badge; the words are this module's own."""
        return f":{self.colour}-badge[{self.sign} {self.word}]"


@dataclass(frozen=True)
class Line:
    """One selector's answers, in the order of `QUESTIONS`. budget: the share of rows that can go by it, in words."""

    selector: str
    stable_but_invalid: bool
    chips: tuple[Chip, ...]
    budget: str = ""


def questions(invariance: pl.DataFrame | None) -> tuple[str, ...]:
    """Those that are answered: the last one where the table `invariance_verdicts` is there."""
    return QUESTIONS if invariance is not None else QUESTIONS[:-1]


def lines(verdicts: pl.DataFrame, invariance: pl.DataFrame | None) -> list[Line]:
    """One per selector of `verdicts` (in today's words), in the order used everywhere.
    invariance: the table `invariance_verdicts`; None where it was not measured. Robust: the ranking stays the same when
    the weights are rewritten and every logit keeps its bits."""
    rows = {row["selector"]: row for row in verdicts.iter_rows(named=True)}
    moves = {} if invariance is None else dict(invariance.select("selector", "invariance").iter_rows())
    there = palette.title(BASELINE) if BASELINE in rows else None
    found = []
    for name in palette.in_order(list(rows)):
        row, title = rows[name], palette.title(name)
        beside = [title] if there in (None, title) else [title, there]
        chips = (
            _chip(0, _FAITHFUL.get(row["validity"], NOT_MEASURED), "curves", {"selectors": beside}),
            _chip(1, _STABLE.get(row["stability"], NOT_MEASURED), "believed", {"part": "Stability"}),
            _chip(2, _ROBUST.get(moves.get(name, ""), NOT_MEASURED), "believed", {"part": "Exact controls"}),
        )
        budget = row.get("budget")
        words = "" if budget is None else share_text(budget)
        found.append(Line(name, bool(row["stable_but_invalid"]), chips[: len(questions(invariance))], words))
    return found


def _chip(place: int, answer: tuple[tuple[str, str], str], path: str, parameters: dict[str, Any]) -> Chip:
    (sign, colour), word = answer
    return Chip(QUESTIONS[place], sign, colour, word, path, parameters)
