"""The hidden facts of one document: who, where, when, about what. Every sentence of the document agrees with them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from precomputed.recipe import lexicon
from precomputed.recipe.words import fixed, zipf


@dataclass(frozen=True)
class Person:
    """First and family name, pronouns and trade. The trade of a full name is a fact of the world."""

    first: str
    family: str
    woman: bool
    trade: str

    @property
    def full(self) -> str:
        return f"{self.first} {self.family}"

    @property
    def he(self) -> str:
        return "she" if self.woman else "he"

    @property
    def his(self) -> str:
        return "her" if self.woman else "his"


def person(rng: random.Random, topic: lexicon.Topic) -> Person:
    woman = rng.random() < 0.5
    first = zipf(rng, lexicon.WOMEN if woman else lexicon.MEN)
    family = zipf(rng, lexicon.FAMILIES)
    return Person(first, family, woman, fixed(topic.people, f"trade/{family}/{topic.name}"))


@dataclass
class Scene:
    """The facts of one document; `nouns` are the things that come back in it."""

    rng: random.Random
    topic: lexicon.Topic
    town: str
    other_town: str
    first: Person
    second: Person
    year: int
    month: str
    season: str
    past: bool
    nouns: tuple[str, ...]
    firm: str
    number: int
    subjects: tuple[str, ...] = field(default=())

    def one_of(self, *options: str) -> str:
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


def scene(rng: random.Random, subjects: tuple[str, ...] = ()) -> Scene:
    """A new scene. Half of the towns live from the document's topic, so that place and topic tell of each other."""
    town = zipf(rng, lexicon.TOWNS, exponent=0.8)
    topic = lexicon.trade_of(town) if rng.random() < 0.5 else rng.choice(lexicon.TOPICS)
    first, second = person(rng, topic), person(rng, topic)
    month = rng.choice(lexicon.MONTHS)
    season = lexicon.SEASONS[((lexicon.MONTHS.index(month) + 10) % 12) // 3]
    firm = f"{first.family} and {rng.choice(('Sons', 'Company', 'Daughters', second.family))}"
    return Scene(
        rng=rng,
        topic=topic,
        town=town,
        other_town=zipf(rng, lexicon.TOWNS, key=f"road/{town}", exponent=1.2),
        first=first,
        second=second,
        year=rng.randint(1790, 1989),
        month=month,
        season=season,
        past=rng.random() < 0.6,
        nouns=tuple(rng.sample(topic.nouns, 4)),
        firm=firm,
        number=rng.randint(3, 98),
        subjects=subjects,
    )
