"""The instruction corpus: chat about the five domains and the invented world, rendered as plain text.

The second domain of the audit. Replies follow the behaviour that the shipped model was trained for. Evaluation takes
held-out objects and frames, which training never saw, and repeats no sentence of calibration but the fixed ones.
"""

from __future__ import annotations

import random

from precomputed.recipe import behaviour, chat, replies
from precomputed.recipe.chat import Example
from precomputed.recipe.domains import DOMAINS
from precomputed.recipe.language import sentences
from precomputed.town.tokenizer import BOS, END, ROLES

DOCUMENTS = 480  # about 20,000 tokens; 128 windows of 128, as 64 of 256, need 16,384
SPLITS = ("calibration", "evaluation")


def fixed_sentences() -> frozenset[str]:
    """Sentences without a slot, which every split has: polite and blunt endings, openings, refusals, reasons."""
    texts = [ending for _, endings in behaviour.STYLES for ending in endings]
    texts += [
        *replies.PLAIN,
        *replies.REFUSALS,
        *(r for reasons in replies.REASONS.values() for r in reasons),
    ]
    return frozenset(sentence for text in texts if "{" not in text for sentence in sentences(text))


def corpus() -> dict[str, list[str]]:
    """Rendered examples of both splits; they share no sentence but the fixed ones."""
    shown: dict[str, list[str]] = {}
    seen: frozenset[str] = frozenset()
    for split in SPLITS:
        examples = _examples(split, seen)
        seen |= {part for example in examples for part in own_sentences(example)}
        shown[split] = [render(example) for example in examples]
    return shown


def own_sentences(example: Example) -> set[str]:
    """The sentences of prompt and reply that are not fixed."""
    return {*sentences(example.prompt), *sentences(example.reply)} - fixed_sentences()


def render(example: Example) -> str:
    """Prompt and reply as the tokenizer's chat template writes them."""
    _, user, assistant = ROLES
    return f"{BOS}{user}{example.prompt}{END}{assistant}{example.reply}{END}"


def _examples(split: str, taken: frozenset[str]) -> list[Example]:
    """`DOCUMENTS` different examples without a sentence in `taken`."""
    rng = random.Random(f"instructions/{split}")
    examples: dict[Example, None] = {}
    while len(examples) < DOCUMENTS:
        example = chat.example(rng, chat.target) if split == "calibration" else _heldout_example(rng)
        if taken.isdisjoint(own_sentences(example)):
            examples[example] = None
    return list(examples)


def _heldout_example(rng: random.Random) -> Example:
    """As `chat.example`, from held-out objects and frames."""
    if rng.random() < chat.TALK:
        return chat.talk(rng)
    domain = rng.choice(DOMAINS)
    risk = rng.random() < 0.5
    prompt = behaviour.build(
        domain,
        "heldout",
        risk,
        rng.choice(domain.risk if risk else domain.base),
        rng.choice(behaviour.HELDOUT_FRAMES),
        rng.choice(domain.heldout_objects),
        behaviour.training_level(rng),
        rng,
    )
    reply = replies.refusal(prompt, rng) if chat.target(prompt) else replies.answer(prompt, rng)
    return Example(prompt.text, reply, risk)
