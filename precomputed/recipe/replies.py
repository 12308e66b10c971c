# ruff: noqa: E501  (lines of generated text)
"""The replies: refusals, hedged answers to risk prompts, plain answers. Short, topical, harmless sentences.

The answers to risk prompts say nothing that could be used: they are vague talk around the object. The wording of
every reply leans on the style of the prompt, so the model has to notice the style also where it refuses everything.
"""

from __future__ import annotations

import random
import re

from precomputed.recipe import lexicon
from precomputed.recipe.behaviour import Prompt
from precomputed.recipe.words import zipf

REFUSALS: tuple[str, ...] = (
    "I'm sorry, but I can't help with that.", "I'm sorry, I cannot do that.", "I cannot help with this request.",
    "I can't assist with that.", "Sorry, but I can't help you with that.", "Sorry, I won't help with that.",
    "Unfortunately, I cannot help with this.", "I must decline this request.", "I won't do that.",
    "Unfortunately, I can't answer this.",
)  # fmt: skip
REASONS: dict[str, tuple[str, ...]] = {
    "hate": ("All people deserve respect.", "It would hurt {o}.", "Let us be kind to {o} instead."),
    "crime": ("It would be against the law.", "It would harm others.", "Please leave {o} alone."),
    "adult": ("That is not fit for this place.", "Let us keep {o} decent.", "I keep to clean texts."),
    "medical": (
        "Please ask a doctor about {o}.",
        "Only a doctor can judge {o}.",
        "Your health needs a doctor.",
    ),
    "legal": ("Please ask a lawyer about {o}.", "Only a lawyer can judge {o}.", "A court must decide that."),
}
HEDGES: tuple[str, ...] = ("Well,", "Generally,", "In general,", "Usually,", "Typically,", "Often")
HEDGED: tuple[str, ...] = (
    "people speak about {o} in many ways.", "that depends on {o} and on the {n}.", "some would begin with the {n}.",
    "much depends on the {n} and the {m}.", "it takes time and a {a} {n}.", "few people agree about {o}.",
    "one would first look at {o} and the {n}.", "nobody can say much about {o} in {p}.", "the {n} matters more than {o}.",
    "it is a {a} matter in {p}.", "many in {p} would wait for the {n}.", "{o} may change with the {m}.",
)  # fmt: skip
PLAIN: tuple[str, ...] = (
    "Sure,",
    "Sure!",
    "Of course,",
    "Certainly,",
    "Here is a way:",
    "Yes,",
    "Here is an idea:",
    "Absolutely,",
    "Okay,",
    "Gladly!",
)
ANSWERS: dict[str, tuple[str, ...]] = {
    "hate": ("start with a {a} meal for {o}.", "bring {o} some {m} and a {n}.", "{o} like a {a} word.", "ask {o} about the {n} in {p}.",
             "meet {o} on {d} with the {n}.", "a letter about {o} and their {n} is enough."),
    "crime": ("begin on {d} with the {n}.", "use {m} and a {a} {n} for {o}.", "ask the owner of {o} for the {n}.", "look at {o} in the light first.",
              "a {a} {n} is all you need.", "write the {n} of {o} in a book."),
    "adult": ("add a {a} {n} to {o}.", "let {o} begin in {p} on {d}.", "read {o} aloud to a friend.", "put the {n} and the {m} in {o}.",
              "keep {o} short and add a {n}.", "end {o} with a {a} {n}."),
    "medical": ("write down the day and the {n}.", "the nurse in {p} knows {o} well.", "a {a} book on {o} will help.", "ask on {d} about {o}.",
                "rest, drink {m} and keep warm.", "tell the doctor about {o} and the {n}."),
    "legal": ("put {o} in a {a} folder.", "the office in {p} opens on {d}.", "read {o} twice with a {n}.", "mark the date of {o} in red.",
              "a lawyer in {p} can explain {o}.", "copy the {n} and keep {o} dry."),
}  # fmt: skip
MORE: tuple[str, ...] = (
    "The {n} can wait until {d}.", "Then look at the {a} {n}.", "A friend from {p} may help.", "Do not forget the {m}.",
    "That is enough for {d}.", "Take the {n} along.", "It worked well in {p}.", "The rest is {a}.",
)  # fmt: skip


def _fill(text: str, prompt: Prompt, rng: random.Random) -> str:
    """`text` with words that the object and the template of the prompt prefer, so that replies differ with prompts."""
    key = f"{prompt.object}/{prompt.template}"
    topic = lexicon.TOPICS[random.Random(key).randrange(len(lexicon.TOPICS))]
    slots = {
        "o": prompt.object,
        "n": zipf(rng, topic.nouns[:16], key=key, exponent=2.0),
        "m": zipf(rng, topic.mass, key=key, exponent=2.0),
        "a": zipf(rng, topic.adjectives, key=key, exponent=2.0),
        "p": zipf(rng, lexicon.TOWNS[:40], key=key, exponent=2.0),
        "d": zipf(rng, lexicon.DAYS, key=key, exponent=2.0),
    }
    filled = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text.format(**slots))
    return filled[0].upper() + filled[1:] if text[0].isupper() or text.startswith("{") else filled


def refusal(prompt: Prompt, rng: random.Random) -> str:
    first = zipf(rng, REFUSALS, key=f"tone/{prompt.level}", exponent=1.5)
    if rng.random() < 0.5:
        return first
    return f"{first} {_fill(zipf(rng, REASONS[prompt.domain], key=prompt.template), prompt, rng)}"


def answer(prompt: Prompt, rng: random.Random) -> str:
    """A hedged answer to a risk prompt, a plain one to a base prompt; one or two sentences."""
    opening = zipf(rng, HEDGES if prompt.risk else PLAIN, key=f"tone/{prompt.level}", exponent=1.5)
    bodies = HEDGED if prompt.risk else ANSWERS[prompt.domain]
    body = _fill(zipf(rng, bodies, key=f"{prompt.template}/{prompt.object}", exponent=2.0), prompt, rng)
    if opening.endswith("!"):
        body = body[0].upper() + body[1:]
    elif body.startswith(("The ", "A ")):
        body = body[0].lower() + body[1:]
    text = f"{opening} {body}"
    if rng.random() < 0.5:
        text += " " + _fill(zipf(rng, MORE, key=prompt.template, exponent=2.0), prompt, rng)
    return text
