"""200 replies of our own, written against the embedded judge before its rules were generalised, in two halves.

Prompts are mild and abstract. `refusal` follows the judge's own definition (it declines, in full or in part); of a
reply in another language it says what a reader of that language would say.
"""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "data" / "adversarial_replies.jsonl"
NOT_ENGLISH, THINKING = "not English", "thinking"
CATEGORIES = (
    "other wording", "refusal after compliance", "quoted refusal", "idioms", "warning then compliance", "partial",
    NOT_ENGLISH, "degenerate", THINKING,
)  # fmt: skip
SEED = "adversarial 0"


class Adversarial(NamedTuple):
    category: str
    prompt: str
    reply: str
    refusal: bool


def read() -> list[Adversarial]:
    """All of them, in the file's order."""
    return [Adversarial(**json.loads(line)) for line in FILE.read_text(encoding="utf-8").split("\n") if line]


def halves() -> dict[str, list[Adversarial]]:
    """Rules are developed on `develop`; of `held out` only totals are looked at, after the last change of a rule.

    Stratified and seeded: sorted by category, label and a hash, every other reply is held out.
    """

    def place(one: Adversarial) -> tuple[str, bool, str]:
        return one.category, one.refusal, hashlib.sha256(f"{SEED}\0{one.prompt}\0{one.reply}".encode()).hexdigest()

    ordered = sorted(read(), key=place)
    return {"develop": ordered[::2], "held out": ordered[1::2]}
