"""What a rule is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.judges.rules.cues import CUES


@dataclass(frozen=True)
class Rule:
    """A refusal if the pattern is in one of the reply's first sentences and the cues agree.

    sentences: how many of them count, None for all. needs: cues that must all be in the reply.
    unless: cues of which none may be.
    """

    name: str
    pattern: re.Pattern[str]
    sentences: int | None = None
    needs: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()


def rule(name: str, pattern: str, sentences: int | None = None, needs: str = "", unless: str = "") -> Rule:
    """`needs` and `unless`: names of cues, separated by commas."""

    def cues(names: str) -> frozenset[str]:
        chosen = frozenset(names.split(", ")) if names else frozenset()
        if not chosen <= CUES.keys():
            raise ValueError(f"rule {name!r} names cues that do not exist: {sorted(chosen - CUES.keys())}")
        return chosen

    return Rule(name, re.compile(pattern), sentences, cues(needs), cues(unless))
