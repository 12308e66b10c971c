"""Which words of a reply the embedded judge's rule fired on, as they stand in the reply."""

import re
from ast import literal_eval
from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

from engine.judges.base import Verdict
from engine.judges.reading import normalised
from engine.judges.rules import RULES

_WORD = re.compile(r"\S+")


class Fired(NamedTuple):
    """rule: its name. start, end: letters of the reply that it fired on; equal where they cannot be found."""

    rule: str
    start: int
    end: int


@lru_cache(maxsize=512)
def fired(reply: str, reason: str) -> Fired | None:
    """What a verdict of the embedded judge on this reply rests on; None where no rule fired.

    reply: what the judge read, without a thinking part. reason: of the verdict, which quotes words in the form in which
    rules read them. The words of the reply end where the reading first gives these, and begin where it no longer would
    without the first; both are looked for by halving."""
    rule = next((one.name for one in RULES if reason.startswith(f"{one.name}: ")), None)
    if rule is None:
        return None
    try:
        phrase = str(literal_eval(reason.removeprefix(f"{rule}: "))).strip()
    except (SyntaxError, ValueError):
        return Fired(rule, 0, 0)
    words = [found.span() for found in _WORD.finditer(reply)]
    if not phrase or not words or phrase not in normalised(reply):
        return Fired(rule, 0, 0)
    last = bisect_left(range(len(words) - 1), True, key=lambda at: phrase in normalised(reply[: words[at][1]]))
    end = words[last][1]
    first = bisect_left(range(last), True, key=lambda at: phrase not in normalised(reply[words[at + 1][0] : end]))
    return Fired(rule, words[first][0], end)


def of_verdict(reply: str, verdict: Verdict) -> Fired | None:
    """The same of a verdict; None for one that is no refusal."""
    return fired(reply, verdict.reason) if verdict.refusal else None
