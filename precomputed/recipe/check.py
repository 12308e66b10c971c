"""What the trained model says, checked against the knowledge base: right answers, broken words, refusals by grade."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine.judges.embedded import judge
from engine.measures.generation import generate_batch
from engine.models.loading import LoadedModel
from precomputed.recipe import demo_chat as chat, demo_replies as replies, facts
from precomputed.recipe.asking import framed
from precomputed.recipe.demo_chat import Example
from precomputed.recipe.risk import GRADES, prompt
from precomputed.recipe.world import DOMAINS, world

LONGEST = 64  # tokens of a reply
FACTS, FOLLOW_UPS, PER_GRADE = 160, 80, 30  # questions on facts; second questions; prompts of each domain and grade


def words(text: str) -> list[str]:
    return re.findall(r"[a-z'-]+", text.lower())


def names_it(reply: str, key: Sequence[str]) -> bool:
    """Whether a reply has every key word of the answer, whatever its case."""
    said = reply.lower()
    return all(one.lower() in said for one in key)


def nearest(reply: str) -> str:
    """The how-to whose text shares most words with the reply (F1 over words)."""
    said = Counter(words(reply))

    def overlap(text: str) -> float:
        other = Counter(words(text))
        return 2 * (said & other).total() / max(1, said.total() + other.total())

    return max(world().howtos, key=lambda one: overlap(one.reply)).id


def right(reply: str, one: Example) -> bool:
    """Whether the reply names the right fact or step: every key word, and for a how-to no other how-to is nearer."""
    return names_it(reply, one.key) and (one.about not in _howtos() or nearest(reply) == one.about)


def _howtos() -> frozenset[str]:
    return frozenset(one.id for one in world().howtos)


def heldout_howtos(rng: random.Random) -> list[Example]:
    """Every held-out phrasing of every how-to, in a held-out frame."""
    return [
        Example((framed(rng, phrase, heldout=True)[0],), replies.plain(one.id, one.reply), about=one.id, key=one.key)
        for one in world().howtos
        for phrase in one.blind
    ]


def heldout_facts(rng: random.Random, count: int, follow: bool = False) -> list[Example]:
    return [chat.fact(rng, heldout=True, follow=follow) for _ in range(count)]


def heldout_prompts(rng: random.Random, per_grade: int, heldout: bool = True) -> list[Example]:
    """Prompts of the risk domains with their trained target: held-out phrases, frames and objects."""
    found = []
    for domain in DOMAINS:
        for grade in GRADES:
            for _ in range(per_grade):
                situation = rng.choice(world().of_domain(domain))
                thing = rng.choice(situation.heldout_objects if heldout else situation.objects)
                one = prompt(rng, situation, grade, heldout, thing)
                found.append(chat.answered(one, chat.target(one, rng)))
    return found


def checked(loaded: LoadedModel) -> dict[str, Any]:
    """Shares of right answers to held-out questions, how many were asked, refusals of held-out prompts by domain and
    grade, broken words.

    A how-to or a fact counts as `right` says; of the prompts, the base ones (near, plain) count, as right
    where they have the key words of their situation's answer. Refusals are the embedded judge's.
    """
    rng = random.Random("checked")
    asked = {
        "howtos": heldout_howtos(rng),
        "facts": heldout_facts(rng, FACTS),
        "follow-ups": heldout_facts(rng, FOLLOW_UPS, follow=True),
        "prompts": heldout_prompts(rng, PER_GRADE),
    }
    every = [one for some in asked.values() for one in some]
    made = [reply.text for reply in generate_batch(loaded, [one.turns for one in every], LONGEST)]
    said = dict(zip(every, made, strict=True))
    base = [one for one in asked["prompts"] if one.grade in ("near", "plain")]
    refused: dict[str, dict[str, float]] = {}
    for domain in DOMAINS:
        of = {grade: [one for one in asked["prompts"] if _place(one) == (domain, grade)] for grade in GRADES}
        refused[domain] = {grade: _share([judge(said[one]).refusal for one in some]) for grade, some in of.items()}
    answerable = {**asked, "prompts": base}
    return {
        "right": {name: _share([right(said[one], one) for one in some]) for name, some in answerable.items()},
        "asked": {name: len(some) for name, some in answerable.items()},
        "refused": refused,
        "replies": len(made),
        "broken": broken(made),
    }


def _place(one: Example) -> tuple[str, str]:
    return one.about.partition("/")[0], one.grade


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found)


def vocabulary() -> frozenset[str]:
    """Every word that the recipe's texts can say."""
    rng = random.Random("vocabulary")
    examples = [chat.example(rng, chat.too_careful) for _ in range(20000)]
    texts = [text for one in examples for text in (*one.turns, one.reply)]
    w = world()
    texts += [one.reply for one in w.howtos] + [said for one in w.howtos for _, said in one.follow]
    texts += [*facts.knowledge().values()]
    for situation in w.situations:
        for thing in (*situation.objects, *situation.heldout_objects):
            texts.append(situation.reply.replace("{o}", thing))
    texts += [*replies.REFUSALS, *replies.TALK, *replies.MORE, *replies.PLAIN, *replies.HEDGES]
    texts += [reason for some in replies.REASONS.values() for reason in some]
    return frozenset(word for text in texts for word in words(text))


def broken(texts: Sequence[str]) -> dict[str, int]:
    """Words of the replies that the town does not know, with how often they stand there."""
    known = vocabulary()
    return dict(Counter(word for text in texts for word in words(text) if word not in known))
