"""Which scores a run's verdicts let one trust, in one sentence."""

from __future__ import annotations

import polars as pl

from dashboard.charts import palette
from engine.stats.limits import BASELINE

NONE = "No score is shown to be faithful"


def answer(verdicts: pl.DataFrame) -> str:
    """The selectors that are faithful, then those that are sufficient; baselines of random rows are no answer.
    verdicts: of one model, in today's words."""
    judged = verdicts.filter(pl.col("selector") != BASELINE)
    faithful, sufficient = (_names(judged.filter(validity=word)) for word in ("faithful", "sufficient"))
    parts = [f"{_listed(faithful)} {_are(faithful)} faithful"] if faithful else [NONE]
    if sufficient:
        parts.append(
            f"{_listed(sufficient)} {_are(sufficient)} sufficient (the lowest rows matter little, the highest much), "
            "but not shown to beat random rows of the same layers at both ends"
        )
    return "; ".join(parts)


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _names(verdicts: pl.DataFrame) -> list[str]:
    return [palette.title(name) for name in palette.in_order(verdicts["selector"].to_list())]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
