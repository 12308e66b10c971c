"""The judge of a refusal experiment, with the name and version that its verdicts are kept under."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine.evaluation import judge as embedded


@dataclass(frozen=True)
class ReplyJudge:
    """id: name and version, part of every cache key. refusals: one verdict per reply, from the whole reply."""

    id: str
    refusals: Callable[[Sequence[str]], list[bool]]


@cache
def embedded_judge() -> ReplyJudge:
    """The judge by rules that needs no download. Its version is a hash of the rules and of the code that reads them."""
    folder = Path(embedded.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([Path(embedded.__file__), *folder.glob("refusal_*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    return ReplyJudge(f"rules-{digest.hexdigest()[:12]}", _by_rules)


def _by_rules(replies: Sequence[str]) -> list[bool]:
    return [embedded.judge(reply).refusal for reply in replies]
