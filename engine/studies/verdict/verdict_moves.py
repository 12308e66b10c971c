"""How verdicts move when their limits move: every limit alone, to a laxer and a stricter value."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from engine.results.tables import frame
from engine.stats.limits import Thresholds

Judge = Callable[[Thresholds], pl.DataFrame]
JUDGED = ("validity", "specific", "stability")
# What each limit is called, and its other values, laxer first. A value that is the base's own is left out.
LIMITS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "faithful_damage": ("damage that is still sufficient", (0.7, 0.3)),
    "invalid_damage": ("damage that is close to chance", (0.9, 0.7)),
    "log_gap": ("log gap that is large enough", (0.5, 2.0)),
    "level": ("level of the tests", (0.1, 0.01)),
    "spearman": ("Spearman between draws that is stable", (0.9, 0.99)),
    "jaccard": ("Jaccard between draws that is stable", (0.7, 0.9)),
    "specific_orders": ("orders in which a selector has to be specific", (("lerf",), ("morf",), ("lerf", "morf"))),
}


def verdict_moves(judge: Judge, base: Thresholds) -> pl.DataFrame:
    """Table `verdict_moves`: per selector its words under `base` moved in one limit, and which of them changed.
    judge: the verdicts under given limits, as `judge_selectors` gives them. Two limits together are not moved: a
    verdict that holds under each of these may still turn under both."""
    before = {row["selector"]: row for row in judge(base).iter_rows(named=True)}
    lines = []
    for limit, (_, values) in LIMITS.items():
        for value in values:
            if value == getattr(base, limit):
                continue
            for row in judge(replace(base, **{limit: value})).iter_rows(named=True):
                old = before[row["selector"]]
                words = [row[name] for name in JUDGED]
                changed = [name for name in JUDGED if row[name] != old[name]]
                where = (row["model"], row["selector"], limit, value_text(getattr(base, limit)), value_text(value))
                lines.append((*where, *words, ", ".join(changed) or None))
    return frame("verdict_moves", lines)


def value_text(value: Any) -> str:
    """A limit's value, as tables have it."""
    return "+".join(value) if isinstance(value, tuple) else f"{value:g}"


def sentences(moves: pl.DataFrame, title: Callable[[str], str] = str) -> list[str]:
    """One for every moved limit: which verdicts it changes, and how; the unchanged ones last, together."""
    changing, unchanging = [], []
    for (limit, base, value), lines in moves.group_by("limit", "base_value", "moved_value", maintain_order=True):
        moved_limit = f"{LIMITS[str(limit)][0]}: {value} instead of {base}"
        by_change: dict[str, list[str]] = {}
        for row in lines.filter(pl.col("changed").is_not_null()).iter_rows(named=True):
            by_change.setdefault(_change(row), []).append(title(row["selector"]))
        if by_change:
            changes = (
                f"{' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))} "
                f"{'becomes' if len(names) == 1 else 'become'} {now}"
                for now, names in by_change.items()
            )
            changing.append(f"{moved_limit}: {'; '.join(changes)}.")
        else:
            unchanging.append(moved_limit)
    return changing + ([f"No verdict changes with {'; '.join(unchanging)}."] if unchanging else [])


def _change(row: dict[str, Any]) -> str:
    """The words that are others now; the column's name only where the word does not say it."""
    return " and ".join(
        f"{'' if name == 'validity' else f'{name}: '}“{row[name]}”" for name in row["changed"].split(", ")
    )
