"""Which scores a run's verdicts let one trust, in one sentence."""

from __future__ import annotations

import polars as pl

from dashboard.charts import palette
from engine.stats.limits import BASELINE


def answer(verdicts: pl.DataFrame) -> str:
    """The selectors that are faithful, then those that are sufficient; baselines of random rows are no answer.

    verdicts: of one model, in today's words.
    """
    judged = verdicts.filter(pl.col("selector") != BASELINE)
    faithful, sufficient = (_names(judged.filter(validity=word)) for word in ("faithful", "sufficient"))
    first = f"{_listed(faithful)} faithful" if faithful else "No score is shown to be faithful"
    if sufficient:
        return f"{first}; {_listed(sufficient)} sufficient"
    return first if faithful else f"{first} or sufficient"


def _names(verdicts: pl.DataFrame) -> list[str]:
    return [palette.title(name) for name in palette.in_order(verdicts["selector"].to_list())]


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is"
    return f"{', '.join(names[:-1])} and {names[-1]} are"
