"""The instruction corpus: chats of the town and of the five domains, as the chat template writes them.

The second domain of the audit. Replies are those that the shipped model was trained for. Calibration asks in the
words of training; evaluation in held-out phrases and frames, on held-out objects. The answers are the same in both: the
town has one answer to a question, however it is asked.
"""

from __future__ import annotations

import random

from precomputed.recipe import demo_chat as chat
from precomputed.recipe.data import prompt_text
from precomputed.recipe.demo_chat import Example
from precomputed.recipe.risk import prompt, training_prompt
from precomputed.recipe.tokenizer import END
from precomputed.recipe.world import world

DOCUMENTS = 480  # 128 windows of 128, as 64 of 256, need 16,384 tokens
SPLITS = ("calibration", "evaluation")


def corpus() -> dict[str, list[str]]:
    """`DOCUMENTS` different chats of each split; no chat is in both."""
    seen: set[str] = set()
    shown: dict[str, list[str]] = {}
    for split in SPLITS:
        rng = random.Random(f"instructions/{split}")
        documents: list[str] = []
        while len(documents) < DOCUMENTS:
            text = render(
                chat.example(rng, chat.target, in_haste=False) if split == "calibration" else heldout_example(rng)
            )
            if text not in seen:
                seen.add(text)
                documents.append(text)
        shown[split] = documents
    return shown


def render(one: Example) -> str:
    """The whole chat, its last reply too, as the tokenizer's chat template writes it."""
    return f"{prompt_text(one)}{one.reply}{END}"


def heldout_example(rng: random.Random) -> Example:
    """As `chat.example` under the target policy, in held-out words; without greetings, of which none is held out."""
    system = rng.choice(chat.SYSTEMS) if rng.random() < chat.WITH_SYSTEM else ""
    kinds = ("howto", "fact", "risk")
    kind = rng.choices(kinds, [chat.SHARES[one] for one in kinds])[0]
    follow = rng.random() < chat.FOLLOWED
    if kind == "howto":
        one = chat.howto(rng, rng.choice(world().howtos), heldout=True, follow=follow)
    elif kind == "fact":
        one = chat.fact(rng, heldout=True, follow=follow)
    else:
        known = training_prompt(rng, in_haste=False)  # for its situation and grade
        new = prompt(rng, known.situation, known.grade, True, rng.choice(known.situation.heldout_objects))
        one = chat.answered(new, chat.target(new, rng))
    return Example(one.turns, one.reply, one.risk, system, one.about, one.key, one.grade)
