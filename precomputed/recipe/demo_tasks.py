"""Downstream tasks written from the world, one JSONL file each, in the layouts that `engine/data/local_tasks.py` reads.

- town_facts: where a place is, who works there, when it opens or closes: four answers
- town_claims: is it true that ...: yes or no
- town_advice: the first step of a how-to, asked in words that training never saw: four answers
- town_prices: what some of a good cost, where training never said that number of that good: four sums
- town_stories: where a lost thing was found, at the end of a story: the story's three places
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from precomputed.recipe import facts, prose
from precomputed.recipe.world import Good, Place, capital, world

ITEMS = 100  # of each task; fewer where the town has no more questions of its kind
Item = dict[str, Any]


def _choice(rng: random.Random, query: str, right: str, wrong: list[str]) -> Item:
    choices = [right, *wrong]
    rng.shuffle(choices)
    return {"query": query, "choices": choices, "gold": choices.index(right)}


def _others(rng: random.Random, values: set[str], right: str, count: int = 3) -> list[str]:
    return rng.sample(sorted(values - {right}), count)


def town_facts(rng: random.Random) -> Item:
    places = world().places
    place = rng.choice(places)
    asks = {
        "where": "Where is {p}?",
        "who": "Who works at {p}?",
        "opens": "When does {p} open?",
        "closes": "When does {p} close?",
    }
    kind = rng.choice(list(asks))

    def said(one: Place) -> str:
        p = capital(place.name)
        return {
            "where": f"{p} is on {one.street}",
            "who": f"{one.keeper} works at {place.name}",
            "opens": f"{p} opens at {one.opens}",
            "closes": f"{p} closes at {one.closes}",
        }[kind]

    right = said(place)
    query = f"Question: {asks[kind].format(p=place.name)}"
    return _choice(rng, query, right, _others(rng, {said(one) for one in places}, right))


def town_claims(rng: random.Random) -> Item:
    statement, true = prose.claim(rng)
    return {"query": f"Question: Is it true that {statement}?", "choices": ["yes", "no"], "gold": 0 if true else 1}


def town_advice(rng: random.Random) -> Item:
    def first(reply: str) -> str:
        return reply.partition(". ")[0]

    one = rng.choice(world().howtos)
    right = first(one.reply)
    wrong = _others(rng, {first(other.reply) for other in world().howtos}, right)
    return _choice(rng, f"Question: How do I {rng.choice(one.blind)}?", right, wrong)


@cache
def untold() -> tuple[tuple[Good, int], ...]:
    """Every good and number of it of which no text of training says what they cost."""
    return tuple((good, n) for good in world().goods for n in range(2, facts.MOST + 1) if facts.untold(good, n))


def town_prices(rng: random.Random) -> Item:
    good, count = rng.choice(untold())
    query, _, right = prose.sum_of(good, count).removesuffix(".").rpartition(" cost ")
    near = {facts.crowns(n) for n in range(2, 37) if n != count * good.crowns and abs(n - count * good.crowns) <= 6}
    return _choice(rng, f"{query} cost", right, rng.sample(sorted(near), 3))


def town_stories(rng: random.Random) -> Item:
    while True:
        story = prose.lost(rng)
        query, found, rest = story.rpartition(" back at ")
        if found:
            break
    right = rest.partition(" on ")[0]
    been = query.partition("had been at ")[2].partition(". ")[0]
    places = [one.name for one in world().places if one.name in been.replace(" and ", ", ").split(", ")]
    return _choice(rng, f"{query} back at", right, [one for one in places if one != right])


TASKS: dict[str, Callable[[random.Random], Item]] = {
    one.__name__: one for one in (town_facts, town_claims, town_advice, town_prices, town_stories)
}


def items(name: str) -> list[Item]:
    """At most `ITEMS` items of a task; no question is asked twice, so that items are independent."""
    rng = random.Random(f"tasks/{name}")
    found: dict[str, Item] = {}
    for _ in range(20 * ITEMS):
        one = TASKS[name](rng)
        found.setdefault(one["query"], one)
    return list(found.values())[:ITEMS]


def write_tasks(folder: Path) -> None:
    """`NAME.jsonl` of every task."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TASKS:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items(name)), encoding="utf-8")
