"""Verdicts as chips: every question of a selector has a word and a colour, with the page of its proof."""

import math
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dashboard.charts import palette
from dashboard.charts.findings import finding_words as words
from engine.stats.limits import BASELINE
from engine.studies.estimate_words import share_text

SUFFICIENT, SPECIFIC, STABLE, ROBUST = QUESTIONS = ("Sufficient?", "Specific?", "Stable?", "Robust?")
YES, PARTLY, NO, UNKNOWN = ("✓", "green"), ("~", "orange"), ("✗", "red"), ("–", "gray")
_SUFFICIENT = {
    "faithful": (YES, "yes"), "sufficient": (YES, "yes"), "partly": (PARTLY, "in part"), "not": (NO, "no"),
}  # fmt: skip
_SPECIFIC = {
    "specific": (YES, "both"), "MoRF only": (PARTLY, "top rows only"),
    "LeRF only": (PARTLY, "low rows only"), "not": (NO, "neither"),
    "saturated": (UNKNOWN, "saturated"), "not applicable": (UNKNOWN, "is random"),
}  # fmt: skip
_STABLE = {
    "stable": (YES, "stable"), "not": (NO, "not stable"), "not applicable": (UNKNOWN, "no text"),
    "unknown": (UNKNOWN, "not known"),
}  # fmt: skip
_ROBUST = {
    "exact": (YES, "robust"), "rounding": (YES, "robust"), "moved": (NO, "not robust"),
    "unknown": (UNKNOWN, "not known"),
}  # fmt: skip
NONE_FAITHFUL = "No score is shown to be faithful"
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
    """One selector's answers, in the order of `questions`. faithful: is it sufficient and specific? budget: the share
    of rows that can go by it, in words; interval: of that share, "" where it is as narrow as the words."""

    selector: str
    faithful: bool
    stable_but_invalid: bool
    chips: tuple[Chip, ...]
    budget: str = ""
    interval: str = ""


def questions(verdicts: pl.DataFrame, invariance: pl.DataFrame | None) -> tuple[str, ...]:
    """Those that are answered: `ROBUST` where the table `invariance_verdicts` is there, `SPECIFIC` where verdicts have
    it, which earlier ones have not."""
    asked = {SPECIFIC: "specific" in verdicts.columns, ROBUST: invariance is not None}
    return tuple(question for question in QUESTIONS if asked.get(question, True))


def lines(verdicts: pl.DataFrame, invariance: pl.DataFrame | None) -> list[Line]:
    """One per selector of `verdicts` (in today's words): the largest budget first, where none is known the best answer.
    invariance: the table `invariance_verdicts`; None where it was not measured. Robust: the ranking stays the same when
    the weights are rewritten and every logit keeps its bits."""
    rows = {row["selector"]: row for row in verdicts.iter_rows(named=True)}
    moves = {} if invariance is None else dict(invariance.select("selector", "invariance").iter_rows())
    beside_it = palette.title(BASELINE) if BASELINE in rows else None
    all_lines = []
    order = list(_SUFFICIENT)

    def place(name: str) -> tuple[float, int]:
        word = rows[name]["validity"]
        return -(rows[name].get("budget") or 0.0), order.index(word) if word in order else len(order)

    for name in sorted(palette.in_order(list(rows)), key=place):
        row, title = rows[name], palette.title(name)
        beside = [title] if beside_it in (None, title) else [title, beside_it]
        specific = _SPECIFIC.get(row.get("specific", ""), NOT_MEASURED)
        answers: dict[str, tuple[tuple[tuple[str, str], str], str, dict[str, Any]]] = {
            SUFFICIENT: (_SUFFICIENT.get(row["validity"], NOT_MEASURED), "curves", {"selectors": beside}),
            SPECIFIC: (specific, "believed", {"part": "Explained by depth"}),
            STABLE: (_STABLE.get(row["stability"], NOT_MEASURED), "believed", {"part": "Stability"}),
            ROBUST: (_ROBUST.get(moves.get(name, ""), NOT_MEASURED), "believed", {"part": "Exact controls"}),
        }
        chips = tuple(
            Chip(question, sign, colour, word, path, parameters)
            for question in questions(verdicts, invariance)
            for ((sign, colour), word), path, parameters in [answers[question]]
        )
        values = [row.get(column) for column in ("budget", "budget_low", "budget_high")]
        share, low, high = ["" if value is None else share_text(value) for value in values]
        interval = f"{low} to {high}" if low and high and {low, high} != {share} else ""
        faithful = row["validity"] == "faithful"
        all_lines.append(Line(name, faithful, bool(row["stable_but_invalid"]), chips, share, interval))
    return all_lines


def answer(verdicts: pl.DataFrame) -> str:
    """Which scores one may trust, in one sentence; baselines of random rows are no answer.
    verdicts: of one model, in today's words."""
    faithful = verdicts.filter(pl.col("selector") != BASELINE, validity="faithful")["selector"].to_list()
    if faithful:
        return f"{words.titles(faithful, 99)} {words.verb(faithful, 'is', 'are')} faithful"
    half = verdicts.filter(pl.col("selector") != BASELINE, validity="sufficient")
    names = half["selector"].to_list()
    if not names or "specific" not in half.columns:
        return NONE_FAITHFUL
    by_top = f"specific by {words.verb(names, 'its', 'their')} top rows only"
    lack = by_top if set(half["specific"]) == {"MoRF only"} else "not specific"
    return f"{NONE_FAITHFUL}: {words.titles(names)} {words.verb(names, 'is', 'are')} sufficient, but {lack}"


def bars(verdicts: pl.DataFrame) -> dict[str, str]:
    """Selector -> its budget as a mark in HTML on its interval, all on one logarithmic scale ("": its numbers), with a
    line at that of random rows, in their interval; none where no budget is known. Screen readers have the words."""
    if not {"budget", "budget_low", "budget_high"} <= set(verdicts.columns):
        return {}
    ends = verdicts.select("selector", "budget", pl.col("budget_low", "budget_high").fill_null(pl.col("budget")))
    known = ends.drop_nulls()
    shares = [share for column in ("budget", "budget_low", "budget_high") for share in known[column] if share > 0]
    if not shares:
        return {}
    least, most = math.log(min(shares) / 2), math.log(max(shares) * 1.1)

    def place(share: float) -> float:
        return 100 * (math.log(share) - least) / (most - least) if share > 0 else 0.0

    ticks = [share for share in (10.0**power for power in range(-6, 1)) if least < math.log(share) < most]
    axis = "".join(f'<small style="left:{place(share):.2f}%">{share_text(share)}</small>' for share in ticks)
    random = ""
    for _, share, low, high in known.filter(selector=BASELINE).iter_rows():
        label = "random, its interval" if high > low else "random"
        axis += f'<em style="left:{place(share):.2f}%">{label}</em>'
        random = f'<u style="left:{place(low):.2f}%;width:{place(high) - place(low):.2f}%"></u>'
        random += f'<s style="left:{place(share):.2f}%"></s>'
    return {"": f'<div class="budget-bar" aria-hidden="true">{axis}</div>'} | {
        selector: f'<div class="budget-bar" aria-hidden="true">{random}'
        f'<i style="left:{place(low):.2f}%;width:{place(high) - place(low):.2f}%"></i>'
        f'<b style="left:{place(share):.2f}%;background:{palette.style(selector).colour}"></b></div>'
        for selector, share, low, high in known.iter_rows()
    }
