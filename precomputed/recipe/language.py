"""The corpus: documents in many registers, in three splits that share no sentence."""

from __future__ import annotations

import random
import re

from precomputed.recipe.registers import REGISTERS
from precomputed.recipe.scene import scene

_SENTENCE_END = re.compile(r'(?<=[.?!"])\s+(?=["A-Z0-9])')


def sentences(text: str) -> list[str]:
    """The sentences of a text, as the test for shared sentences counts them."""
    return [part for paragraph in text.split("\n") for part in _SENTENCE_END.split(paragraph.strip()) if part]


def document(rng: random.Random, subjects: tuple[str, ...]) -> list[str]:
    """One document as a list of sentences; `subjects` are what the chat prompts are about, for `talk_of_town`."""
    registers, weights = zip(*REGISTERS, strict=True)
    register = rng.choices(registers, weights)[0]
    return register(scene(rng, subjects))


def corpus(seed: int, characters: int, subjects: tuple[str, ...], seen: set[str]) -> list[str]:
    """Documents of at least `characters` in all, without any sentence in `seen`; their own sentences are added to it.

    A line of a document that holds a sentence of an earlier split is left out, so splits made one after the other
    with the same `seen` share no sentence.
    """
    rng = random.Random(f"corpus/{seed}")
    taken = frozenset(seen)
    documents: list[str] = []
    total = 0
    while total < characters:
        lines = [line for line in document(rng, subjects) if taken.isdisjoint(sentences(line))]
        text = " ".join(lines)
        if len(lines) < 3 or not taken.isdisjoint(sentences(text)):
            continue
        seen.update(sentences(text))
        documents.append(text)
        total += len(text) + 2
    return documents
