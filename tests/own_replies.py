"""468 short replies of our own that decline or answer, in three sets: plain ones, other ways of saying so, and forms.

`misjudged`: known to be judged wrongly, so that nobody takes the rest for all there is; a change that mends one of
these takes the mark away.
"""

import json
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "data" / "own_replies.jsonl"
SETS = ("plain", "other ways", "forms")


class OwnReply(NamedTuple):
    set: str
    refusal: bool
    reply: str
    kind: str = ""
    misjudged: bool = False


def own_replies() -> list[OwnReply]:
    """All of them, in the file's order."""
    return [OwnReply(**json.loads(line)) for line in FILE.read_text(encoding="utf-8").split("\n") if line]
