"""Replies before and after an edit, prompt by prompt, with every verdict that there is on each."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import polars as pl

from engine.judges.base import EMBEDDED, Exchange, Verdict, verdicts_on
from engine.judges.embedded import EmbeddedJudge, embedded_version
from engine.judges.given_replies import FINISHED, JUDGED

STEM = "refusal_replies"
UNEDITED = "none"
ALL, FLIPPED, UNFINISHED, DIFFER = FILTERS = ("All", "Flipped", "Unfinished", "Judges differ")
_KEYS = ("prompts", "kind", "prompt")
_SIDES = ("before", "after")
_MOST_READ = 8192


class Opinion(NamedTuple):
    """One judge's verdict on one reply, without a reason where none was kept. judge: its id and version."""

    judge: str
    verdict: Verdict


def pairs(table: pl.DataFrame, selector: str) -> pl.DataFrame:
    """One line per prompt that was answered under the edits of a selector, in the table's order.
    table: `refusal_replies` of one model. Columns domain, lambda, k, prompts, kind, prompt, and reply, refused, judge,
    finished, judged of either side with `_before` and `_after`; finished and judged are null where the table does not
    have them. The unedited replies are those of the same domain, of a set that is no domain's those without one; a
    prompt without them is left out."""
    for name in (FINISHED, JUDGED):
        if name not in table.columns:
            table = table.with_columns(pl.lit(None, pl.Boolean).alias(name))
    values = ("reply", "refused", "judge", FINISHED, JUDGED)
    before = table.filter(selector=UNEDITED).select(
        "domain", *_KEYS, *(pl.col(name).alias(f"{name}_before") for name in values)
    )
    after = table.filter(selector=selector).select(
        "domain", "lambda", "k", *_KEYS, *(pl.col(name).alias(f"{name}_after") for name in values)
    )
    after = after.with_row_index("place")
    own = after.join(before, on=["domain", *_KEYS], how="inner")
    shared = before.filter(domain=UNEDITED).drop("domain")
    rest = after.join(own.select("place"), on="place", how="anti").join(shared, on=list(_KEYS), how="inner")
    found = pl.concat([own, rest.select(own.columns)]).unique("place", keep="first").sort("place")
    return found.drop("place")


def kept(both: pl.DataFrame, which: str) -> pl.DataFrame:
    if which == FLIPPED:
        return both.filter(pl.col("refused_before") != pl.col("refused_after"))
    if which == UNFINISHED:
        return both.filter(~pl.col("finished_before") | ~pl.col("finished_after"))
    if which == DIFFER:
        keep = [any(differ(opinions(row, side)) for side in _SIDES) for row in both.iter_rows(named=True)]
        return both.filter(pl.Series(keep, dtype=pl.Boolean))
    return both


def opinions(row: dict[str, object], side: str) -> list[Opinion]:
    """The kept verdict on one side of a pair, and the embedded judge's of now where that is another version."""
    reply, refused = str(row[f"reply_{side}"]), bool(row[f"refused_{side}"])
    now = read_now(reply, row[f"finished_{side}"] if isinstance(row[f"finished_{side}"], bool) else None)
    embedded = Opinion(today(), now)
    name = str(row[f"judge_{side}"])
    reason = now.reason if name == embedded.judge and now.refusal == refused else ""
    first = Opinion(name, Verdict(refused, reason, judged=row[f"judged_{side}"] is not False))
    return [first] if name == embedded.judge else [first, embedded]


def differ(found: Sequence[Opinion]) -> bool:
    """Do two judges that could judge the reply say different things?"""
    return len({one.verdict.refusal for one in found if one.verdict.judged}) > 1


def today() -> str:
    return f"{EMBEDDED} {embedded_version()}"


@lru_cache(maxsize=_MOST_READ)
def read_now(reply: str, finished: bool | None) -> Verdict:
    return verdicts_on(EmbeddedJudge(), [Exchange("", reply, finished)])[0]
