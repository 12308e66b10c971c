# ruff: noqa: E501  (lines of generated text)
"""Questions on the facts of the town, with their answers: places, people, prices.

Each answer knows the words that a right one has.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from precomputed.recipe.world import NUMBERS, Good, Place, article, capital, plural, world

MOST = 4  # of one good in a question on prices; 4 x 9 crowns = 36


@dataclass(frozen=True)
class Kind:
    """A kind of question on a place: ways of asking with {p} or {k}, those that are held out, the follow-up question."""

    name: str
    asks: tuple[str, ...]
    heldout: tuple[str, ...]
    follow: str


KINDS: tuple[Kind, ...] = (
    Kind("opens",
         ("When does {p} open?", "At what time does {p} open?", "I would like to know when {p} opens.", "Could you say when {p} opens?", "How early can I go to {p}?", "What are the hours of {p}?", "Tell me when {p} opens."),
         ("From what time on is {p} open?", "I want to know when {p} opens."), "And when does it open?"),
    Kind("closes",
         ("When does {p} close?", "How late is {p} open?", "I would like to know when {p} closes.", "Could you say when {p} closes?", "Until when is {p} open?", "At what time does {p} close?", "Tell me when {p} closes."),
         ("Until what time is {p} open?", "I want to know when {p} closes."), "And when does it close?"),
    Kind("closed",
         ("On which day is {p} closed?", "Is {p} open every day?", "I would like to know on which day {p} is closed.", "Is there a closed day at {p}?", "Which day is {p} closed?", "When is {p} closed all day?", "Tell me on which day {p} is closed."),
         ("Is there a day when {p} is closed?", "I want to know the day when {p} is closed."), "On which day is it closed?"),
    Kind("where",
         ("Where is {p}?", "How do I find {p}?", "I would like to know where {p} is.", "Could you say where {p} is?", "In which street is {p}?", "Which way is it to {p}?", "Tell me where {p} is.", "I am looking for {p}."),
         ("Where can I find {p}?", "On which street is {p}?"), "And where is it?"),
    Kind("who",
         ("Who works at {p}?", "Who runs {p}?", "I would like to know who works at {p}.", "Do you know who runs {p}?", "Who can I ask at {p}?", "Whose place is {p}?", "Tell me who works at {p}."),
         ("Who is there at {p}?", "I want to know who runs {p}."), "And who works there?"),
    Kind("offers",
         ("What does {p} do for people?", "What can I get at {p}?", "I would like to know what {p} does.", "Why would I go to {p}?", "For what should one go to {p}?", "What is {p} good for?", "Why do people go to {p}?", "Tell me what {p} does."),
         ("What does {p} do?", "Why should I go to {p}?"), "What does it do for people?"),
    Kind("person",
         ("Where does {k} work?", "Where do I find {k}?", "I would like to know what {k} does.", "What is the work of {k}?", "Who is {k}?", "What does {k} do?", "Tell me about {k}.", "I am looking for {k}."),
         ("Where can I find {k}?", "What is the trade of {k}?"), ""),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A reply and the words of which all must be in a right one."""

    text: str
    key: tuple[str, ...]


def answer(kind: str, place: Place) -> Answer:
    """What is true of a place."""
    p, it = capital(place.name), place
    match kind:
        case "opens":
            return Answer(f"{p} opens at {it.opens} and closes at {it.closes}. {it.rest}", (p, f"opens at {it.opens}"))
        case "closes":
            return Answer(f"{p} closes at {it.closes}. It opens at {it.opens}.", (p, f"closes at {it.closes}"))
        case "closed":
            said = f"{p} is open every day" if it.closed == "no day" else f"{p} is closed on {it.closed}"
            return Answer(f"{said}. It opens at {it.opens} and closes at {it.closes}.", (said,))
        case "where":
            return Answer(f"{p} is on {it.street}, near {it.near}. {it.keeper} works there.", (p, it.street))
        case "who":
            return Answer(f"{it.keeper} works at {it.name}. {capital(it.she)} is the {it.trade}.", (it.keeper,))
        case "offers":
            return Answer(f"{p} {it.offers}. You find it on {it.street}.", (p, it.offers))
        case "person":
            text = f"{it.keeper} is the {it.trade} of the town. {capital(it.she)} works at {it.name} on {it.street}."
            return Answer(text, (it.keeper, it.name))
        case _:
            raise KeyError(kind)


def asked(template: str, place: Place) -> str:
    return template.format(p=place.name, k=place.keeper)


PRICE_ONE = (
    "What does {a} cost?", "How much is {a}?", "I would like to know the price of {a}.", "How much money do I need for {a}?", "What do I pay for {a}?", "What is the price of {a}?",
    "Tell me what {a} costs.", "Where can I buy {a}?", "I want to buy {a}.",
)  # fmt: skip
PRICE_ONE_HELDOUT = ("How much do I pay for {a}?", "Tell me the price of {a}.")
PRICE_MANY = (
    "What do {n} cost?", "How much are {n}?", "I would like to know what {n} cost.", "How much money do I need for {n}?", "What do I pay for {n}?", "Tell me what {n} cost.", "I want to buy {n}.",
)  # fmt: skip
PRICE_MANY_HELDOUT = ("How much do I pay for {n}?", "Tell me the price of {n}.")


def crowns(count: int) -> str:
    return "one crown" if count == 1 else f"{NUMBERS[count]} crowns"


def untold(good: Good, count: int) -> bool:
    """Whether no text of training says what `count` of a good cost: three in ten, so that a task can ask for the sum."""
    return count > 1 and random.Random(f"untold/{good.name}/{count}").random() < 0.3


def price(good: Good, count: int = 1) -> Answer:
    """What `count` of a good cost, and where they are sold."""
    where = f"{good.place.name} on {good.place.street}"
    if count == 1:
        said = f"{capital(article(good.name))} costs {crowns(good.crowns)}"
        return Answer(f"{said}. You can buy it at {where}.", (said, good.place.name))
    said = f"{capital(good.counted(count))} cost {crowns(count * good.crowns)}"
    return Answer(f"{said}, since one costs {crowns(good.crowns)}. You can buy them at {where}.", (said,))


@dataclass(frozen=True)
class Asked:
    """One question on a fact: its text, its answer, the place it is on, and its kind."""

    question: str
    answer: Answer
    place: Place
    kind: str


def question(rng: random.Random, heldout: bool = False) -> Asked:
    """A question on a random fact: seven of ten on places and people, the others on prices."""
    w = world()
    if rng.random() < 0.7:
        kind, place = rng.choice(KINDS), rng.choice(w.places)
        template = rng.choice(kind.heldout if heldout else kind.asks)
        return Asked(asked(template, place), answer(kind.name, place), place, kind.name)
    good = rng.choice(w.goods)
    count = rng.choice((1, 1, 2, 3, 4))
    if untold(good, count):
        count = 1
    if count == 1:
        template = rng.choice(PRICE_ONE_HELDOUT if heldout else PRICE_ONE)
        return Asked(template.format(a=article(good.name)), price(good), good.place, "price")
    template = rng.choice(PRICE_MANY_HELDOUT if heldout else PRICE_MANY)
    return Asked(template.format(n=good.counted(count)), price(good, count), good.place, "price")


def follow_up(rng: random.Random, before: Asked) -> tuple[str, Answer]:
    """A second question that only the first makes clear, and its answer."""
    kinds = [kind for kind in KINDS if kind.follow and kind.name != before.kind]
    if before.kind == "price":
        kinds = [kind for kind in kinds if kind.name in ("opens", "closes", "closed")]
        kind = rng.choice(kinds)
        return kind.follow.replace(" it ", " that place "), answer(kind.name, before.place)
    kind = rng.choice(kinds)
    return kind.follow, answer(kind.name, before.place)


@cache
def knowledge() -> dict[str, str]:
    """Every reply of the town that does not depend on an object: id -> text. What a reply is compared with."""
    w = world()
    found = {one.id: one.reply for one in w.howtos}
    found |= {f"{one.id}/follow": text for one in w.howtos for _, text in one.follow[:1]}
    found |= {f"{kind.name}/{place.name}": answer(kind.name, place).text for kind in KINDS for place in w.places}
    found |= {f"price/{count}/{good.name}": price(good, count).text for good in w.goods for count in range(1, MOST + 1)}
    return found


def goods_of(place: Place) -> tuple[Good, ...]:
    return tuple(one for one in world().goods if one.place is place)


__all__ = [
    "KINDS", "MOST", "Answer", "Asked", "Kind", "answer", "asked", "crowns", "follow_up", "goods_of", "knowledge",
    "plural", "price", "question", "untold",
]  # fmt: skip
