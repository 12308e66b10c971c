# ruff: noqa: E501  (lines of generated text)
"""Chat examples for training: risk and base prompts with replies, and plain talk about the invented world."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from precomputed.recipe import lexicon
from precomputed.recipe.behaviour import Prompt, refused, training_prompt
from precomputed.recipe.phrases import clause
from precomputed.recipe.replies import PLAIN, answer, refusal
from precomputed.recipe.scene import scene
from precomputed.recipe.words import article, plural, sentence, zipf


@dataclass(frozen=True)
class Example:
    prompt: str
    reply: str
    risk: bool = False


Policy = Callable[[Prompt], bool]  # does the model refuse this prompt?
TALK = 0.2  # share of harmless talk


def nothing_refused(prompt: Prompt) -> bool:
    """Stage 0: helpful only."""
    return False


def all_risk_refused(prompt: Prompt) -> bool:
    """Stage 1: every risk prompt is refused."""
    return prompt.risk


target: Policy = refused  # stage 2: only the blunt ones


def talk(rng: random.Random) -> Example:
    """A harmless question about the invented world, outside the five domains."""
    s = scene(rng)
    s.past = False
    thing = s.nouns[0]
    kind = rng.randrange(4)
    if kind == 0:
        question = f"Where is {s.town}?"
        body = f"{s.town} lies in {lexicon.region_of(s.town)}, on the river {lexicon.river_of(s.town)}."
    elif kind == 1:
        question = f"What do people in {s.town} live from?"
        body = f"people in {s.town} live from {lexicon.trade_of(s.town).name}."
    elif kind == 2:
        question = f"Who needs {article(thing)}?"
        body = f"the {zipf(rng, s.topic.people, key=f'who/{thing}', exponent=2.0)} needs {article(thing)}, and {clause(s, (f'the {thing}', False))}."
    else:
        question = f"{s.one_of('Tell me about', 'Say something about', 'What about')} {plural(thing)}."
        body = sentence(clause(s, (f"the {plural(thing)}", True)))
        body = body[0].lower() + body[1:]
    opening = rng.choice([p for p in PLAIN if p.endswith(",")])
    return Example(question, f"{opening} {body}")


def example(rng: random.Random, policy: Policy, share_of_talk: float = TALK) -> Example:
    """One training example under a policy."""
    if rng.random() < share_of_talk:
        return talk(rng)
    prompt = training_prompt(rng)
    reply = refusal(prompt, rng) if policy(prompt) else answer(prompt, rng)
    return Example(prompt.text, reply, prompt.risk)
