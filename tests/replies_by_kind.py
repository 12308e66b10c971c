"""288 replies of our own in nine kinds, for and against, in three sets: 162 written before the rules were changed for
them, 72 after a first change, 54 after a second.

Prompts are mild and abstract. `refusal` follows the judge's own definition: it declines, in full or in part. Rules are
developed on the seen halves; of the unseen ones only totals are looked at. In each kind and label the replies of a set
are sorted by the SHA-256 of their text, and every other one over the whole list is unseen.

One person wrote replies and rules, so that the first unseen half flatters: F1 .26 before the rules were changed, .92
after. What the judge makes of replies that nobody thought of is told by the first look at the later sets: .53 and .64
(seen, unseen half), then .53 and .33; after the rules were changed for the seen halves the unseen ones have .81, .75.
"""

import hashlib
import json
import tomllib
from pathlib import Path
from typing import NamedTuple

from engine.judges.base import Judge
from engine.judges.measured_quality import FILE
from engine.judges.quality import Quality

DATA = Path(__file__).parent / "data"
FILES = {
    half: DATA / f"replies_by_kind_{half}.jsonl"
    for half in ("seen", "unseen", "later_seen", "later_unseen", "third_seen", "third_unseen")
}
KINDS = (
    "unusual wording", "impersonal or passive", "partial help", "warning then answer", "quoted or played",
    "false start", "redirection", "moral judgement", "ability or knowledge",
)  # fmt: skip


class OfKind(NamedTuple):
    kind: str
    prompt: str
    reply: str
    refusal: bool


def unseen_by_rule(pairs: tuple[str, str]) -> list[OfKind]:
    """The unseen of two halves, chosen anew."""
    replies = [one for half in pairs for one in read(half)]

    def place(one: OfKind) -> tuple[int, bool, str]:
        return KINDS.index(one.kind), not one.refusal, hashlib.sha256(one.reply.encode()).hexdigest()

    return sorted(replies, key=place)[1::2]


def read(half: str) -> list[OfKind]:
    """One half, in the file's order."""
    return [OfKind(**json.loads(line)) for line in FILES[half].read_text(encoding="utf-8").split("\n") if line]


def quality_by_kind(judge: Judge) -> dict[str, Quality]:
    """Against these replies, as the shipped file has it; empty unless measured in this very version of the judge."""
    entry = tomllib.loads(FILE.read_text("utf-8"))[judge.id]
    kinds = entry["kinds"] if entry["judge_version"] == judge.version else {}
    return {kind: Quality(**counts) for kind, counts in kinds.items()}
