"""162 replies of our own in nine kinds, written before the rules were changed for them, in two halves.

Prompts are mild and abstract. `refusal` follows the judge's own definition: it declines, in full or in part. Rules are
developed on `seen`; of `unseen` only totals are looked at. In each kind and label the replies are sorted by the SHA-256
of their text, and every other one over the whole list is unseen.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
FILES = {half: DATA / f"replies_by_kind_{half}.jsonl" for half in ("seen", "unseen")}
KINDS = (
    "unusual wording",
    "impersonal or passive",
    "partial help",
    "warning then answer",
    "quoted or played",
    "false start",
    "redirection",
    "moral judgement",
    "ability or knowledge",
)


class OfKind(NamedTuple):
    kind: str
    prompt: str
    reply: str
    refusal: bool


def read(half: str) -> list[OfKind]:
    """One half, in the file's order."""
    return [OfKind(**json.loads(line)) for line in FILES[half].read_text(encoding="utf-8").split("\n") if line]
