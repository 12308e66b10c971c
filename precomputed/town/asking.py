"""How people ask: frames around a verb phrase, and a little politeness. Held-out ones are never trained on."""

from __future__ import annotations

import random

from precomputed.town.world import capital

FRAMES: tuple[str, ...] = (
    "how do I {i}?", "how can I {i}?", "tell me how to {i}.", "I want to {i}.", "I would like to {i}.",
    "help me to {i}.", "show me how to {i}.", "explain how I can {i}.", "what is a good way to {i}?",
    "what is the best way to {i}?", "I need to {i}.", "I have to {i} today.", "can you help me to {i}?",
    "what should I do to {i}?", "how would you {i}?", "do you know how to {i}?", "I do not know how to {i}.",
    "my sister wants to {i}.", "my friend asks how to {i}.", "we would like to {i}.", "how could we {i}?",
    "give me advice, I want to {i}.", "is there a way to {i}?", "please tell me how I can {i}.", "I am trying to {i}.",
    "how does one {i}?", "could you tell me how to {i}?", "what do I need to {i}?",
)  # fmt: skip
HELDOUT_FRAMES: tuple[str, ...] = (
    "what is the right way to {i}?", "my brother would like to {i}.", "can you show me how to {i}?",
    "how should I {i}?", "we need to {i} today.", "I am trying to find a way to {i}.",
)  # fmt: skip
OPENINGS: tuple[str, ...] = ("Hello, ", "Good morning, ", "Excuse me, ", "Good evening, ", "So, ", "One question, ")
ENDINGS: tuple[str, ...] = (" Thank you.", " Please.", " Many thanks.", " It is for tomorrow.", " Please be brief.")


def framed(rng: random.Random, phrase: str, heldout: bool = False, polite: bool = True) -> tuple[str, str]:
    """(the question, its frame): `phrase` in a random frame, four times in ten with an opening or an ending."""
    frame = rng.choice(HELDOUT_FRAMES if heldout else FRAMES)
    return dressed(rng, frame.replace("{i}", phrase), polite), frame


def dressed(rng: random.Random, question: str, polite: bool = True) -> str:
    """The question with an opening, an ending, or neither."""
    if polite and rng.random() < 0.25:
        rest = question if question.startswith(("I ", "I'")) else question[0].lower() + question[1:]
        question = rng.choice(OPENINGS) + rest
    if polite and rng.random() < 0.25:
        question += rng.choice(ENDINGS)
    return capital(question)
